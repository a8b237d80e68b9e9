"""Whole models on a GPU: agreement with the float32 reference, warm speed, device memory, cold starts awake and asleep.

Used by bench/device.py. "Awake": another process holds a context, so the driver need not start the card. Each figure says
how it was counted; speed may use random weights, agreement never does.
"""

import statistics
import subprocess
import sys
import time
from _ctypes import addressof
from pathlib import Path

import numpy

from bench import record, spawn
from reflex import native
from reflex.backends.cuda import driver
from reflex.open import open_model
from reflex.sample import Sampling

PROMPTS = ("The capital of France is", "def fibonacci(n):\\n    ", "Once upon a time, in a land far away,")
TOKENS = 200  # of one decode run
FOLLOWED = 8  # tokens of a run that are compared with the reference
PROMPT, CANDIDATES = PROMPTS[0], (" Paris", " London")
HOLD = "from reflex.backends.cuda import device; import sys; d = device.start(); print('held', flush=True); sys.stdin.read()"
BARE = "from reflex.backends.cuda import device; import os; device.start(); print('x', flush=True); os._exit(0)"


def rows_of(session, ids):
    """float32 [vocabulary] logits behind `ids`, a copy."""
    session.rewind(0)
    session.sync(ids)
    return numpy.array(session.plan.logits(0), numpy.float32)


def compare(path, steps):
    """Greedy steps of the reference after each prompt, the device given the same tokens."""
    _, _, trusted = open_model(path, "reference")
    _, _, tested = open_model(path, "cuda")
    errors, worst, same, clear_wrong, count, repeats, followed = [], 0.0, 0, 0, 0, True, []
    for prompt in PROMPTS:
        ids = trusted.encode(prompt)
        for _ in range(steps):
            trusted.sync(ids)
            tested.sync(ids)
            want, got = (numpy.array(s.plan.logits(0), numpy.float32) for s in (trusted, tested))
            std = want.std()
            errors.append(float(numpy.sqrt(numpy.mean((got - want) ** 2)) / std))
            worst = max(worst, float(numpy.abs(got - want).max() / std))
            top = numpy.sort(want)[-2:]
            agree = int(want.argmax()) == int(got.argmax())
            same += agree
            clear_wrong += not agree and bool(top[1] - top[0] >= 0.5)
            count += 1
            ids.append(int(want.argmax()))
        again = rows_of(tested, ids), rows_of(tested, ids)
        repeats = repeats and bool((again[0] == again[1]).all())
        followed.append(follow(trusted, tested, ids[:-steps], min(steps, FOLLOWED)))
    why = tested.plan.decoder.why
    for session in (trusted, tested):
        session.close()
    return {
        "decode": f"separate kernels ({why})" if why else "one kernel",
        "decode_logprob_error": max(error for error, _, _ in followed),
        "decode_gap_std": max(gap for _, gap, _ in followed),
        "decode_repeats": all(equal for _, _, equal in followed),
        "file": Path(path).name,
        "rms_std": statistics.median(errors),
        "max_std": worst,
        "same": same,
        "steps": count,
        "clear_wrong": clear_wrong,
        "repeats": repeats,
    }


def follow(trusted, tested, ids, steps):
    """(largest error of a log-probability, how far a chosen token lay below the best one in std, whether two runs are equal) of
    tokens that the device makes by itself, against the reference given the same tokens."""

    def run():
        session = tested
        session.rewind(0)
        session.sync(ids)
        token = session.plan.argmax(0)
        made = [(token, session.plan.logprobs(0, [token])[0])]
        for following, logprob in session.follow(token, Sampling(), 1, (), steps - 1):
            session.accept(made[-1][0])
            made.append((following, logprob))
        return made

    made = run()
    error = gap = 0.0
    for number, (token, logprob) in enumerate(made):
        trusted.sync(ids + [t for t, _ in made[:number]])
        want = numpy.array(trusted.plan.logits(0), numpy.float64)
        top = want.max()
        error = max(error, abs(want[token] - top - numpy.log(numpy.exp(want - top).sum()) - logprob))
        gap = max(gap, (top - want[token]) / want.std())
    return float(error), float(gap), made == run()


def timed(action, seconds=1.0, least=5):
    """Raw seconds of repeated calls."""
    spent = []
    while len(spent) < least or sum(spent) < seconds:
        started = time.perf_counter()
        action()
        spent.append(time.perf_counter() - started)
    return spent


def generate(session, token, count):
    """Generate `count` tokens, on the device by itself, or one by one where it asks for its experts; whether it was the former."""
    run = session.follow(token, Sampling(), 1, (), count)
    if run is None:
        for _ in range(count):
            session.append(token)
            token = session.plan.argmax(0)
        return False
    for following, _ in run:
        session.accept(token)
        token = following
    return True


def measure(path):
    """Prompt and decode speed, device memory and upload of one file."""
    started = time.perf_counter()
    file, _, session = open_model(path, "cuda", 2048)
    plan = session.plan
    ids = (session.encode(PROMPT) * 600)[:512]
    session.sync(ids[:5])
    plan.argmax(0)
    opened = time.perf_counter() - started
    free, total = plan.device.memory()
    weights = sum(tensor.nbytes for tensor in file.tensors.values())
    body = {"file_bytes": file.size, "weight_bytes": weights, "open_s": opened, "phases": phases(plan.device)}

    def prompt(count):
        def action():
            session.rewind(0)
            session._slots.ids.clear()
            session.sync(ids[:count])
            plan.argmax(0)

        action()
        return record.summary([count / t for t in timed(action)], 1)

    body["prompt_512"], body["prompt_32"] = prompt(512), prompt(32)
    for context in (100, 1000):

        def decode(context=context):
            session.rewind(0)
            session.sync((ids * 2)[:context])
            token = plan.argmax(0)
            started = time.perf_counter()
            runs = generate(session, token, TOKENS)
            return time.perf_counter() - started, runs

        runs = decode()[1]
        body[f"decode_{context}"] = record.summary([TOKENS / decode()[0] for _ in range(8)], 1)
        if runs:
            body[f"graph_us_{context}"] = graph_microseconds(plan, context)
    body["weight_gb_s"] = body["decode_100"]["median"] * weights / 1e9
    body["device_bytes"] = plan.device_bytes
    body["device_free"], body["device_total"] = free, total
    session.close()
    file.close()
    return body


def graph_microseconds(plan, context):
    """Device time of one greedy step: the graph of a stopped run changes nothing, so it can be timed by itself."""
    plan.place_request(0, context, [(0, 1, -1, -1)] if plan.places else ())  # keeps no state
    graph = plan.decoder.graph(False, False)
    view = native.view(plan.request.address, 4, "i")
    view[3] = 1  # stopped
    plan.device.copy_in(plan.address(plan.memory.cells), plan.request.address, plan.memory.request_bytes)
    spent = []
    for _ in range(6):
        events = [driver.word("cuEventCreate", 0) for _ in range(2)]
        driver.call("cuEventRecord", events[0], plan.device.stream)
        for _ in range(50):
            graph.launch()
        driver.call("cuEventRecord", events[1], plan.device.stream)
        driver.call("cuEventSynchronize", events[1])
        cell = (native.Int64 * 1)()
        driver.call("cuEventElapsedTime", addressof(cell), *events)
        spent.append(float(numpy.frombuffer(bytes(cell), numpy.float32)[0]) * 1000 / 50)
    return record.summary(spent[1:], 1)


def phases(device):
    """{phase: milliseconds} of the device thread."""
    marks = device.marks
    return {name: (at - marks[i][1]) / 1e6 for i, (name, at) in enumerate(marks[1:])}


def cold(command, path, runs, awake, peer=()):
    """Milliseconds from spawn to exit, in turn: ours, of a process that only makes a context, and of `peer`, the words that start
    another engine; and how many times as long that took as ours, pair by pair. `awake`: another process holds a context."""
    words = [command, "system1", path, PROMPT, "--backend=cuda", "--json", "--timings"]
    words += [word for text in CANDIDATES for word in ("--candidate", text)]
    bare = [sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, {str(record.ROOT)!r}); {BARE}"]
    holder = None
    if awake:
        holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=record.ROOT)
        holder.stdout.readline()
    every = [words, bare, *([peer] if peer else [])]
    rounds = [[spawn.run(one) for one in every] for _ in range(runs + 1)][1:]
    if holder:
        holder.stdin.close()
        holder.wait()
    ours, *others = zip(*rounds, strict=True)
    times = [[run.exit for run in some] for some in (ours, *others)]
    found = {name: record.summary(spent) for name, spent in zip(("ms", "bare_context_ms", "peer_ms"), times, strict=False)}
    if peer:
        found["peer_times"] = record.ratios(times[0], times[2])
    threads = [run.beside("device thread") for run in ours]
    for name, reports in (("phases", [run.phases() for run in ours]), ("device_thread", threads)):
        found[name] = {phase: statistics.median(report[phase] for report in reports) for phase in reports[0]}
    return found


def line(row):
    """The row of the table."""
    figures = [row[name]["median"] for name in ("decode_100", "decode_1000", "prompt_512", "prompt_32")]
    text = f"{row['shape']:<6} decode {figures[0]:7.0f} tok/s at 100, {figures[1]:7.0f} at 1000 ({row['weight_gb_s']:.0f} GB/s); "
    text += f"graph {row['graph_us_100']['median']:.0f} us; " if "graph_us_100" in row else ""
    text += f"prompt 512 {figures[2]:8.0f}, 32 {figures[3]:8.0f} tok/s; "
    text += f"device {(row['device_bytes'] - row['weight_bytes']) / 1e6:.0f} MB beyond the weights"
    if "cold" in row:
        for state, found in row["cold"].items():
            text += f"; {state} {found['ms']['median']:.0f} ms (bare context {found['bare_context_ms']['median']:.0f})"
    return text
