"""How every block format's matrix product compares with a yardstick's, which runs in turn with it: bench/results/formats-cpu.json.

    python bench/formats.py [NAME ...] [--level LEVEL] [--conditions WORD ...] [--record NAME]

With one token the figure is bytes of weights per second as a share of the yardstick's, with more it is products per second.
Conditions: "memory", one thread, weights in memory and not in a cache, since each run takes the next of several copies: what the
asked half is of; "cache", one token only, one thread, a few rows that stay in the second-level cache: arithmetic alone; "cores",
one token only, a process per core, all with the same format at the same time, weights in memory: what a model does on the whole
machine. Times are processor time of a thread, so that other work counts for little; for all cores wall time, of the slowest.

LEVEL may name a second kernel, as "x86-64-v4 permuted", or none, as "x86-64-v4"; without it a processor's own are taken.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from levels import load  # noqa: E402
from one_step import OneStep  # noqa: E402

from bench import record  # noqa: E402
from reflex import native  # noqa: E402
from reflex.quant.types import TYPES  # noqa: E402

YARDSTICK = "Q4_K"
SIZE = 2048
ROUNDS = {1: 41, 8: 21, 64: 7}  # tokens -> pairs of runs
CACHED_ROWS = 256
CORES_ROUNDS, CORES_RUNS = 15, 8  # pairs of measurements of all cores, and runs in each


def names(library):
    """Formats with vector kernels of their own, as the table of types lists them."""
    return [block.name for block in TYPES.values() if any(f"linear_{x}_{block.name}" in library for x in ("q8", "f32"))]


def seconds(step):
    start = time.thread_time_ns()
    step.run()
    return (time.thread_time_ns() - start) / 1e9


def pair_of(library, name, rows, outputs=SIZE, copies=None):
    """Steps of the yardstick and of a format, each run once."""
    case = {"rows": rows, "in": SIZE, "out": outputs, "bias": False}
    steps = [OneStep("linear", case, format, library, copies) for format in (YARDSTICK, name)]
    for step in steps:
        step.run()
    return steps


def compare(library, name, rows, cached=False):
    """{"share": the format's speed over the yardstick's, pair by pair, "microseconds": of its runs}."""
    steps = pair_of(library, name, rows, *((CACHED_ROWS, 1) if cached else ()))
    pairs = [[seconds(step) for step in steps] for _ in range(ROUNDS[rows])]
    for step in steps:
        step.close()
    return shares(name, rows, pairs)


def on_all_cores(library, name):
    """The same with one token for as many processes at once as there are cores."""
    count = os.cpu_count()
    barrier, queue = multiprocessing.Barrier(count), multiprocessing.SimpleQueue()

    def work():
        steps, times = pair_of(library, name, 1), []
        for k in range(2 * CORES_ROUNDS):
            barrier.wait()
            start = time.perf_counter_ns()
            for _ in range(CORES_RUNS):
                steps[k % 2].run()
            times.append((time.perf_counter_ns() - start) / 1e9 / CORES_RUNS)
        queue.put(times)

    workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(count)]
    for worker in workers:
        worker.start()
    slowest = [max(times) for times in zip(*(queue.get() for _ in workers), strict=True)]
    for worker in workers:
        worker.join()
    return shares(name, 1, list(zip(slowest[::2], slowest[1::2], strict=True)))


def shares(name, rows, pairs):
    sizes = [block.nbytes / block.elements for format in (YARDSTICK, name) for block in TYPES.values() if block.name == format]
    weight = sizes[1] / sizes[0] if rows == 1 else 1.0
    return {
        "share": record.summary([weight * theirs / ours for theirs, ours in pairs], 3),
        "microseconds": record.summary([1e6 * ours for _, ours in pairs], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--level", default=native.library().level)
    parser.add_argument("--conditions", nargs="+", choices=("memory", "cache", "cores"), default=("memory", "cache", "cores"))
    parser.add_argument("--record", help="write bench/results/NAME.json")
    arguments = parser.parse_args()
    library = native.library() if arguments.level == native.library().level else load(arguments.level)
    found = {}
    ways = {str(rows): lambda name, rows=rows: compare(library, name, rows) for rows in ROUNDS if "memory" in arguments.conditions}
    if "cache" in arguments.conditions:
        ways["1, cache"] = lambda name: compare(library, name, 1, cached=True)
    if "cores" in arguments.conditions:
        ways["1, cores"] = lambda name: on_all_cores(library, name)
    print(f"{arguments.level}: share of {YARDSTICK}'s speed, with one token bytes/s, else products/s; tokens: {'; '.join(ways)}")
    for name in arguments.names or names(library):
        found[name] = {way: measure(name) for way, measure in ways.items()}
        medians = [statistics.median(result["share"]["raw"]) for result in found[name].values()]
        times = "/".join(f"{result['microseconds']['median']:.0f}" for result in found[name].values())
        kernel = library.variant(f"linear_q8_{name}").removeprefix(f"linear_q8_{name}")
        print(f"{name:<8}" + "".join(f"{m:>8.2f}" for m in medians) + f"   {times} us {kernel}", flush=True)
    if arguments.record:
        body = {"level": arguments.level, "yardstick": YARDSTICK, "matrix": [SIZE, SIZE], "cores": os.cpu_count(), "formats": found}
        record.write(arguments.record, "matrix products of every block format, one thread and all cores", body)


if __name__ == "__main__":
    main()
