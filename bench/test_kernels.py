"""Every operation's BENCH cases on one thread, and linear steps in every block format that a kernel file covers.

    pytest bench/test_kernels.py [-k linear] [--benchmark-group-by=func]

Extra columns: GB/s of what is read or written; for linear steps GMAC/s, and with one row the share of what the machine can
read. The weights of a linear step lie in memory, not in a cache: each run takes the next of several copies.
"""

import pytest

from reflex import native, ops
from reflex.quant.types import TYPES, row_bytes
from tests.one_step import OneStep

BENCH = [(op, case) for op in ops.operations() if op != "linear" for case in ops.find(op).BENCH]
FORMATS = [b.name for b in TYPES.values() if b.name[0] != "I" or b.name[1] == "Q"]  # not the integer types, which hold no weights
OWN = [name for name in FORMATS if any(f"linear_{kind}_{name}" in native.library() for kind in ("q8", "f32"))]
LINEAR = [(name, case) for name in OWN for case in ops.find("linear").BENCH]
LINEAR += [(name, ops.find("linear").BENCH[0]) for name in FORMATS if name not in OWN]


def show(value):
    if isinstance(value, dict):
        return "-".join(f"{k}{v}" for k, v in value.items() if v not in (False, 0.0, 0))
    return str(value)


def measure(benchmark, step, nbytes, read_rate=None):
    expected = nbytes / 20 + 0.03 * step.macs  # ns, roughly
    benchmark.pedantic(step.run, warmup_rounds=2, rounds=max(5, min(30, int(2e8 / expected))))
    seconds = benchmark.stats.stats.median
    benchmark.extra_info["GB/s"] = round(nbytes / seconds / 1e9, 2)
    if read_rate:
        benchmark.extra_info["share of read rate"] = round(nbytes / seconds / 1e9 / read_rate, 3)
    if step.macs:
        benchmark.extra_info["GMAC/s"] = round(step.macs / seconds / 1e9, 2)
    step.close()


@pytest.mark.parametrize(("op", "case"), BENCH, ids=show)
def test_operation(benchmark, op, case):
    step = OneStep(op, case)
    measure(benchmark, step, step.nbytes)


@pytest.mark.parametrize(("format", "case"), LINEAR, ids=show)
def test_linear(benchmark, format, case, read_rate):
    step = OneStep("linear", case, format)
    block = next(b for b in TYPES.values() if b.name == format)
    measure(benchmark, step, case["out"] * row_bytes(block.id, case["in"]), read_rate if case["rows"] == 1 else None)
