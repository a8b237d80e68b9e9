"""Every operation's BENCH cases on one thread, and products, those of experts too, in every block format that a kernel file covers.

    pytest bench/test_kernels.py [-k linear] [--benchmark-group-by=func]

Extra columns: GB/s of what is read or written; for products GMAC/s, and with one row the share of what the machine can
read. The weights of a product lie in memory, not in a cache: each run takes the next of several copies, or other experts.
"""

import numpy
import pytest

from reflex import native, ops
from reflex.quant.types import TYPES, row_bytes
from tests.one_step import OneStep

PRODUCTS = "linear", "expert_linear"
BENCH = [(op, case) for op in ops.operations() if op not in PRODUCTS for case in ops.find(op).BENCH]
FORMATS = [b.name for b in TYPES.values() if b.name[0] != "I" or b.name[1] == "Q"]  # not the integer types, which hold no weights
OWN = [name for name in FORMATS if any(f"linear_{kind}_{name}" in native.library() for kind in ("q8", "f32"))]
CASES = [(op, name, case) for op in PRODUCTS for name in OWN for case in ops.find(op).BENCH]
CASES += [(op, name, ops.find(op).BENCH[0]) for op in PRODUCTS for name in FORMATS if name not in OWN]


def show(value):
    if isinstance(value, dict):
        return "-".join(f"{k}{v}" for k, v in value.items() if v not in (False, 0.0, 0))
    return str(value)


def measure(benchmark, step, nbytes, read_rate=None, setup=None):
    expected = nbytes / 20 + 0.03 * step.macs  # ns, roughly
    benchmark.pedantic(step.run, setup=setup, warmup_rounds=2, rounds=max(5, min(30, int(2e8 / expected))))
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


@pytest.mark.parametrize(("op", "format", "case"), CASES, ids=show)
def test_product(benchmark, op, format, case, read_rate):
    step = OneStep(op, case, format)
    block = next(b for b in TYPES.values() if b.name == format)
    matrices = min(case["rows"] * case.get("used", 1), case.get("experts", 1))
    nbytes = matrices * case["out"] * row_bytes(block.id, case["in"])
    measure(benchmark, step, nbytes, read_rate if case["rows"] == 1 else None, other_experts(step) if "experts" in case else None)


def other_experts(step):
    """Sets up a run in which the rows go to experts chosen anew."""
    x, routes = step.arrays[:2]
    experts, used, random = step.arrays[2].shape[0], step.words["used"], numpy.random.default_rng(2)

    def setup():
        routes[:, used:] = [random.permutation(experts)[:used] for _ in routes]
        step.fill(x, routes)

    return setup
