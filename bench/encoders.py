"""How fast the encoders are beside libgguf, which packages ggml's quantizers: bench/results/encoders.json.

    python bench/encoders.py [NAME ...] [--level LEVEL]

One thread; processor time, the two in turn on the same rows, so that other work on the machine counts for little. Random normal
values, with importance where a format uses it; the bytes must be the same.
"""

import argparse
import sys
import time
from importlib import metadata
from pathlib import Path

import libgguf
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from bench import record  # noqa: E402
from reflex import native  # noqa: E402
from reflex.quant import encoders  # noqa: E402
from reflex.quant.types import by_name  # noqa: E402

ROWS, COLUMNS = 32, 4096
ROUNDS = 7


def seconds(function):
    """Processor time of one call, and what it returns."""
    start = time.thread_time_ns()
    result = function()
    return (time.thread_time_ns() - start) / 1e9, result


def compare(name, importance):
    """{"ratio": libgguf's time over ours, pair by pair; nanoseconds per value of both; "same bytes"}."""
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((ROWS, COLUMNS)) * 0.05).astype("f4")
    weights = (rng.random(COLUMNS) + 0.01).astype("f4") if importance else None
    calls = (
        lambda: encoders.encode(name, rows, weights, threads=1),
        lambda: libgguf.quantize_rows(rows, by_name(name).id, weights),
    )
    for call in calls:
        call()
    pairs = [[seconds(call) for call in calls] for _ in range(ROUNDS)]
    ours, theirs = ([pair[i][0] for pair in pairs] for i in (0, 1))
    return {
        "ratio": record.summary([b / a for a, b in zip(ours, theirs, strict=True)], 2),
        "ns": record.summary([1e9 * t / rows.size for t in ours], 2),
        "libgguf_ns": record.summary([1e9 * t / rows.size for t in theirs], 2),
        "same_bytes": all(np.array_equal(a, b) for (_, a), (_, b) in pairs),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="formats; all that have a compiled encoder by default")
    parser.add_argument("--level", help="CPU level; by default the best of this machine")
    arguments = parser.parse_args()
    if arguments.level:
        path = f"{native.cache_folder()}/encode-{arguments.level}.bin"
        encoders.library.__globals__["_mapped"].append(native.load(path, arguments.level))
    rows = {}
    for name in arguments.names or [one for one in encoders.encodable() if one not in encoders.CONVERSIONS]:
        rows[name] = {}
        kinds = ("none", "importance") if encoders.load(name).IMPORTANCE else ("none",)
        for kind in kinds:
            if kind == "none" and getattr(encoders.load(name), "NEEDED", False):
                continue
            rows[name][kind] = found = compare(name, kind == "importance")
            ratio, ns = found["ratio"]["median"], found["ns"]["median"]
            print(f"{name:8} {kind:10} {ns:8.2f} ns a value, {ratio:6.2f} times as fast, same: {found['same_bytes']}", flush=True)
    if not arguments.names:
        what = "encoders beside libgguf, one thread, processor time in turn"
        record.write("encoders", what, {"level": encoders.library().level, "libgguf": metadata.version("libgguf"), "formats": rows})


if __name__ == "__main__":
    main()
