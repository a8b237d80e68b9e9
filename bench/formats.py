"""How every block format's matrix product compares with a yardstick's, which runs in turn with it: bench/results/formats-cpu.json.

    python bench/formats.py [NAME ...] [--level LEVEL] [--record NAME]

One thread; times are processor time of that thread, so that other work on the machine counts for little. With one token the
figure is bytes of weights per second as a share of the yardstick's, with more it is products per second. The weights lie in
memory, not in a cache: each run takes the next of several copies.
"""

import argparse
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


def names(library):
    """Formats with vector kernels of their own, as the table of types lists them."""
    return [block.name for block in TYPES.values() if any(f"linear_{x}_{block.name}" in library for x in ("q8", "f32"))]


def seconds(step):
    start = time.thread_time_ns()
    step.run()
    return (time.thread_time_ns() - start) / 1e9


def compare(library, name, rows):
    """{"share": the format's speed over the yardstick's, pair by pair, "microseconds": of its runs}."""
    case = {"rows": rows, "in": SIZE, "out": SIZE, "bias": False}
    steps = [OneStep("linear", case, format, library) for format in (YARDSTICK, name)]
    for step in steps:
        step.run()
    pairs = [[seconds(step) for step in steps] for _ in range(ROUNDS[rows])]
    sizes = [block.nbytes / block.elements for format in (YARDSTICK, name) for block in TYPES.values() if block.name == format]
    weight = sizes[1] / sizes[0] if rows == 1 else 1.0
    for step in steps:
        step.close()
    return {
        "share": record.summary([weight * theirs / ours for theirs, ours in pairs], 3),
        "microseconds": record.summary([1e6 * ours for _, ours in pairs], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--level", default=native.library().level)
    parser.add_argument("--record", help="write bench/results/NAME.json")
    arguments = parser.parse_args()
    library = native.library() if arguments.level == native.library().level else load(arguments.level)
    found = {}
    print(f"{arguments.level}: share of {YARDSTICK}'s speed with {list(ROUNDS)} tokens: bytes/s with one, else products/s")
    for name in arguments.names or names(library):
        found[name] = {str(rows): compare(library, name, rows) for rows in ROUNDS}
        medians = [statistics.median(found[name][str(rows)]["share"]["raw"]) for rows in ROUNDS]
        times = "/".join(f"{found[name][str(rows)]['microseconds']['median']:.0f}" for rows in ROUNDS)
        print(f"{name:<8}" + "".join(f"{m:>8.2f}" for m in medians) + f"   {times} us", flush=True)
    if arguments.record:
        body = {"level": arguments.level, "yardstick": YARDSTICK, "matrix": [SIZE, SIZE], "threads": 1, "formats": found}
        record.write(arguments.record, "matrix products of every block format, one thread", body)


if __name__ == "__main__":
    main()
