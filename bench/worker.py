"""A worker under fire (soak.py), thousands of requests; then what a request costs beside the engine's own call.

    python bench/worker.py [MODEL] [--requests 10000] [--seed 1]

Writes bench/results/worker.json, or one by the name of MODEL. That is a tiny random one by default. Linux only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record, soak
from bench.soak import CANDIDATES, ENGINE, TEXT
from reflex import demo
from reflex.client import Client


def overhead(words, model, rounds=15, most=100):
    """Microseconds of processor time of a request in the worker, beside the same call in this process, interleaved: medians over
    rounds of means; and of wall clock as its client sees it."""
    import reflex

    prompt, candidates = TEXT[:50], CANDIDATES[:2]
    cases = {
        "health": (lambda m: None, lambda c: c.health()),
        "system1": (lambda m: m.system1(prompt, candidates), lambda c: c.system1(prompt, candidates)),
        "generate, 4 tokens": (
            lambda m: m.generate(prompt, max_tokens=4),
            lambda c: c.request("generate", prompt=prompt, max_tokens=4),
        ),
        "generate, 4 tokens streamed": (
            lambda m: list(m.generate(prompt, max_tokens=4, stream=True)),
            lambda c: c.generate(prompt, max_tokens=4).rest(),
        ),
    }
    found = {}
    with (
        reflex.load(model, backend="cpu", context=512, threads=1) as inside,
        Client(words("stdio", model, *ENGINE)) as worker,
    ):
        for name, (call, ask) in cases.items():
            call(inside)
            begun = time.perf_counter()
            call(inside)
            repeats = max(2, min(most, int(0.1 / (time.perf_counter() - begun))))  # a tenth of a second
            rows = []
            for _ in range(rounds + 2):
                ours, _ = mean(call, inside, repeats, time.process_time_ns)
                theirs, wall = mean(ask, worker, repeats, lambda: processor_ns(worker.process.pid))
                rows.append((ours, theirs, theirs - ours, wall))
            columns = zip(*rows[2:], strict=True)
            titles = ("in_process_us", "worker_us", "overhead_us", "wall_us")
            found[name] = {title: record.summary(column, 1) for title, column in zip(titles, columns, strict=True)}
    return found


def mean(call, argument, repeats, clock):
    """(us by `clock`, us of wall clock) of a call, over some."""
    begun, spent = time.perf_counter_ns(), clock()
    for _ in range(repeats):
        call(argument)
    return (clock() - spent) / repeats / 1000, (time.perf_counter_ns() - begun) / repeats / 1000


def processor_ns(pid):
    """Processor time of the main thread of a process."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


STOP = """
import reflex.cli.output as output, time, posix
def mark(self, name):
    if name == "kernels":
        posix.write(2, b"%d" % time.process_time_ns())
        posix._exit(0)
output.Output.mark = mark
"""


def until_loaded(words, model, folder, runs=21):
    """Milliseconds of processor time from exec until the model is loaded, which for a worker is `ready`, interleaved."""
    commands = {
        "system1": words("system1", model, "a", "--candidate", "b", *ENGINE, "--json", "--timings", before=STOP),
        "stdio": words("stdio", model, *ENGINE, before=STOP),
        "uds": words("uds", model, f"{folder}/cold.sock", *ENGINE, before=STOP),
    }
    found = {name: [] for name in commands}
    for _ in range(runs + 2):
        for name, command in commands.items():
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
            found[name].append(int(done.stderr) / 1e6)
    return {f"{name}_ms": record.summary(values[2:]) for name, values in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=demo.resolve)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.path.append(str(record.ROOT / "tests"))
    import process

    with tempfile.TemporaryDirectory() as folder:
        model = options.model or soak.tiny_model(folder)
        fire = soak.Soak(process.words, model, soak.adapter_of(model, folder), folder, options.seed)
        found = fire.run(options.requests, options.kills)
        print(json.dumps(found | {"resident_bytes": "..."}, indent=1))
        costs = overhead(process.words, model)
        cold = until_loaded(process.words, model, folder)
        options_said = [record.bare(str(word)) for word in (*fire.engine, *soak.OPTIONS)]
        body = {"model": record.model(model), "options": options_said, "soak": found, "request": costs, "cold": cold}
    name = f"worker-{record.slug(body['model']['title'])}" if options.model else "worker"
    record.write(name, "the worker under fire, and what a request costs beside the engine's own call", body)
    for name, row in costs.items():
        inside, more = row["in_process_us"]["median"], row["overhead_us"]["median"]
        print(f"{name:<28} in process {inside:9.1f} us, more in the worker {more:8.1f}")
    print({name: row["median"] for name, row in cold.items()})


if __name__ == "__main__":
    main()
