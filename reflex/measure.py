"""Measurements behind `reflex bench`: cold starts of this installation in processes of their own, and warm speed in this one.

A cold run is timed from just before the spawn to the end of the process; phases are the child's own. Commands of other
engines are interleaved with ours, so that a change of the machine's mood meets all. Refuses a command that fails.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from itertools import cycle

from . import settings
from .errors import InputOutputError

PROMPT = "The capital of France is"
CANDIDATES = (" Paris", " London")
RUNS_THROWN_AWAY = 2  # they fill the page cache


def own_command():
    """The words that start this installation's command line: its launcher, or the module where there is none."""
    launcher = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "reflex")
    return [launcher] if os.access(launcher, os.X_OK) and os.path.isfile(launcher) else [sys.executable, "-m", "reflex"]


def spawn(words):
    """Run a command to its end; returns (milliseconds, peak memory in bytes, stdout)."""
    started = time.perf_counter_ns()
    quiet, environment = subprocess.DEVNULL, settings.child_environment(started)
    try:
        process = subprocess.Popen(words, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, env=environment)
    except OSError as error:
        raise InputOutputError("cannot start the command", found=error.strerror, where=shlex.join(words)) from None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InputOutputError("the command failed", "exit code 0", process.returncode, shlex.join(words))
    return (time.perf_counter_ns() - started) / 1e6, usage.ru_maxrss * 1024, output


def start_of_ours(model, engine):
    """The words of the cold start that is measured."""
    candidates = [word for text in CANDIDATES for word in ("--candidate", text)]
    ours = [*own_command(), "system1", model, PROMPT, *candidates, "--json", "--timings"]
    for name in ("backend", "threads", "device", "weights", "experts"):
        ours += [f"--{name}={engine[name]}"] if engine[name] else []
    ours += [f"--lora={adapter}" for adapter in engine.get("lora", ())]
    return ours


def cold(model, engine, runs, against):
    """Interleaved cold starts: {phases, total_ms, peak_bytes, against: [{command, total_ms, peak_bytes, ratio}]}, medians."""
    commands = [start_of_ours(model, engine), *(shlex.split(command) for command in against)]
    times, peaks, reports = [[] for _ in commands], [[] for _ in commands], []
    for number in range(RUNS_THROWN_AWAY + runs):
        for at, words in enumerate(commands):
            spent, peak, output = spawn(words)
            if number < RUNS_THROWN_AWAY:
                continue
            times[at].append(spent)
            peaks[at].append(peak)
            if at == 0:
                reports.append(json.loads(output.splitlines()[-1])["phases"])
    medians = [statistics.median(values) for values in times]
    others = [
        {"command": shlex.join(words), "total_ms": medians[at], "peak_bytes": max(peaks[at]), "ratio": medians[at] / medians[0]}
        for at, words in enumerate(commands)
        if at
    ]
    phases = {name: statistics.median(report[name] for report in reports) for name in reports[0]}
    return {"runs": runs, "phases": phases, "total_ms": medians[0], "peak_bytes": max(peaks[0]), "against": others}


def repeat(action, seconds):
    """Median seconds of `action` over as many calls as fit in `seconds`, at least three."""
    spent = []
    while len(spent) < 3 or sum(spent) < seconds:
        started = time.perf_counter()
        action()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def work(session, prompt_tokens=256, decode_tokens=32):
    """(prompt, decode, their numbers of tokens): functions that process a prompt, or that decode after one that is held."""
    prompt_tokens = min(prompt_tokens, session.context - decode_tokens - 1)
    ids = (session.encode(PROMPT) * prompt_tokens)[:prompt_tokens]
    others = cycle([[ids[-1], *ids[1:]], [ids[-2], *ids[1:]]])  # they differ from the start: nothing can be reused

    def prompt():
        session.sync(next(others))
        session.plan.argmax(0)  # waits for a device

    def decode():
        session.sync(ids)  # all but the last token is held
        for _ in range(decode_tokens):
            session.append(session.plan.argmax(0))

    return prompt, decode, prompt_tokens, decode_tokens + 1


def warm(session, weights, seconds=2.0):
    """Tokens per second of prompt processing and of decoding; bytes of weights that decoding reads per second."""
    prompt, decode, prompt_tokens, decode_tokens = work(session)
    prompt_seconds = repeat(prompt, seconds)
    decode()
    decode_seconds = repeat(decode, seconds) / decode_tokens
    return {
        "prompt_tokens_per_second": prompt_tokens / prompt_seconds,
        "decode_tokens_per_second": 1 / decode_seconds,
        "weight_bytes_per_second": weights / decode_seconds,
        "read_bytes_per_second": read_speed(),
    }


def energy(meter, session, model, engine, seconds=2.0):
    """What the device takes for a cold start, a token of a prompt and a decoded one: {name: {count, each_joules, what Meter says of
    all together}}."""
    words = start_of_ours(model, engine)
    prompt, decode, prompt_tokens, decode_tokens = work(session)
    rows = (
        ("cold start", lambda: spawn(words), 1),
        ("prompt token", prompt, prompt_tokens),
        ("decoded token", decode, decode_tokens),
    )
    found, meter.plan = {}, session.plan
    for name, action, each in rows:
        action()
        meter.restart()
        count, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            action()
            count += each
        total = meter.result()
        found[name] = {"each_joules": total["joules"] / count, "count": count, **total}
    return found


def read_speed(size=256 << 20):
    """Bytes per second that one thread can read from memory, by looking for a byte that is not there."""
    zeros = bytearray(size)
    return size / repeat(lambda: zeros.find(b"\x01"), 0.3)
