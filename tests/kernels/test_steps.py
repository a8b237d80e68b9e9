"""Host kernels at every compiled level against the numpy references: every operation over the cases its file declares.

Linear steps run in every block format. With 8-bit activations the exact product is not the aim; the result must lie
within what rounding each activation by half a scale can do, and much nearer on average.
"""

import numpy as np
import pytest
from levels import LEVELS, load
from one_step import OneStep

from reflex import ops, quant
from reflex.quant.types import TYPES

CASES = [(op, case) for op in ops.operations() if op != "linear" for case in ops.find(op).CASES]
WEIGHTS = [b for b in TYPES.values() if b.name[0] != "I" or b.name[1] == "Q"]  # not the integer types


@pytest.fixture(scope="module", params=LEVELS)
def library(request):
    return load(request.param)


def show(value):
    return "-".join(f"{k}{v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("op", "case"), CASES, ids=show)
def test_operation(library, op, case):
    module = ops.find(op)
    arrays, words = module.inputs(case, np.random.default_rng(1))
    wanted = module.reference(*arrays, **words)
    step = OneStep(op, case, library=library)
    step.run()
    found = step.result()
    step.close()
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= module.TOLERANCE * max(np.abs(wanted).max(), 1e-30)


def shapes(block):
    """(rows, columns, outputs): one token to more than a tile, with and without a last group that is not full."""
    unit = block.elements
    for rows, columns, outputs in ((1, 256, 33), (3, 512, 31), (5, 576, 96), (9, 800, 40), (17, 1056, 20)):
        yield rows, max(unit, columns // unit * unit), outputs


def scales(h):
    """The scale of every activation: a 127th of the largest of its 16."""
    return np.repeat(np.abs(h).reshape(len(h), -1, 16).max(axis=2) / 127, 16, axis=1)


@pytest.mark.parametrize("block", WEIGHTS, ids=lambda b: b.name)
def test_linear(library, block):
    for rows, columns, outputs in shapes(block):
        case = {"rows": rows, "in": columns, "out": outputs, "bias": rows == 5}
        step = OneStep("linear", case, block.name, library, copies=1)
        step.run()
        found = step.result()
        h, b = step.arrays[0], step.arrays[2]
        w = quant.decode(block.name, step.blocks).reshape(outputs, columns).astype(np.float64)
        step.close()
        found = found.astype(np.float64)
        exact = h.astype(np.float64) @ w.T + (0 if b is None else b)
        slack = 2e-5 * (np.abs(h) @ np.abs(w).T + 1e-30)  # float32 sums
        if f"linear_q8_{block.name}" in library:
            bound = scales(h) / 2 @ np.abs(w).T + slack
            likely = np.sqrt((scales(h) ** 2 / 12) @ (w**2).T)
            assert np.sqrt(np.mean(((found - exact) / (likely + slack)) ** 2)) < 1.3
        else:
            bound = slack
        assert (np.abs(found - exact) <= bound).all()


def test_run_time_and_kernels_agree_on_layouts():
    """The run time never imports kernels, so it repeats a few sizes of theirs."""
    from reflex.backends import cpu, lowering
    from reflex.kernels import dot
    from reflex.kernels.host import attention, execute

    assert lowering.QUANTIZED_GROUP == dot.QUANTIZED_GROUP
    assert 8 * lowering.STEP_WORDS == execute.STEP_BYTES
    assert cpu.SLOTS == attention.SLOTS
    assert (8 * cpu.SYSCALL_WORD, 8 * cpu.FUTEX_WORD) == (execute.SYSCALL, execute.FUTEX_NUMBER)


def test_tokens_do_not_depend_on_their_tile(library):
    """The same rows alone and in any company, bit for bit, in every format with a vector kernel."""
    for block in WEIGHTS:
        if f"linear_q8_{block.name}" not in library and f"linear_f32_{block.name}" not in library:
            continue
        case = {"rows": 11, "in": 768, "out": 40, "bias": False}
        step = OneStep("linear", case, block.name, library, copies=1)
        step.run()
        together = step.result()
        for row in range(11):
            step.fill(step.arrays[0][row : row + 1])
            step.run()
            np.testing.assert_array_equal(step.result()[0], together[row])
        step.close()
