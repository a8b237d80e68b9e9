"""Host kernels at every compiled level against the numpy references: every operation over the cases its file declares.

Linear steps, of experts too, run in every block format. With 8-bit activations the exact product is not the aim; the result
must lie within what rounding each activation by half a scale can do, and much nearer on average.
"""

import numpy as np
import pytest
from levels import LEVELS, SECOND, load
from one_step import OneStep, put

from reflex import ops, quant
from reflex.quant.types import TYPES, by_name

CASES = [(op, case) for op in ops.operations() for case in ops.find(op).CASES]
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
    step = OneStep(op, case, library=library, copies=1)
    step.run()
    found, states = step.result(), step.states()
    step.close()
    if states is not None:
        assert np.abs(states - words["states"]).max() <= module.TOLERANCE * np.abs(words["states"]).max()
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= module.TOLERANCE * max(np.abs(wanted).max(), 1e-30)


def test_a_head_of_latent_attention_does_not_show_which_heads_read_with_it(library):
    """Eight heads read together, the ninth by itself: with one query they give one result, to the bit, along runs of slots too."""
    case = {"rows": 11, "first": 70, "heads": 9, "key_dim": 45, "value_dim": 37, "branch": "tree"}
    step = OneStep("latent_attention", case, library=library, copies=1)
    put(step.memory.buffer("q"), np.tile(step.arrays[0][:, :45], 9).ravel(), "float32")
    step.run()
    found = step.result().reshape(11, 9, 37)
    step.close()
    assert len({found[:, head].tobytes() for head in range(9)}) == 1 and np.isfinite(found).all()


def shapes(block):
    """(rows, columns, outputs): one token to more than a tile, with and without a last group that is not full."""
    unit = block.elements
    for rows, columns, outputs in ((1, 256, 33), (3, 512, 31), (5, 576, 96), (9, 800, 40), (17, 1056, 20)):
        yield rows, max(unit, columns // unit * unit), outputs


def scales(h):
    """The scale of every activation: a 127th of the largest of its 16."""
    return np.repeat(np.abs(h).reshape(len(h), -1, 16).max(axis=2) / 127, 16, axis=1)


def check_products(library, block, found, h, w, b):
    """Whether `found` is h w^T + b within what the arithmetic of the format can do; w [out, in] or [rows, out, in]."""
    found, h, w = found.astype(np.float64), h.astype(np.float64), w.astype(np.float64)

    def product(x, y):
        return (y @ x[:, :, None])[..., 0]

    exact = product(h, w) + (0 if b is None else b)
    slack = 2e-5 * (product(np.abs(h), np.abs(w)) + 1e-30)  # float32 sums
    bound = slack
    if f"linear_q8_{block.name}" in library:
        bound = product(scales(h) / 2, np.abs(w)) + slack
        likely = np.sqrt(product(scales(h) ** 2 / 12, w**2))
        assert np.sqrt(np.mean(((found - exact) / (likely + slack)) ** 2)) < 1.3
    assert (np.abs(found - exact) <= bound).all()


@pytest.mark.parametrize("block", WEIGHTS, ids=lambda b: b.name)
def test_linear(library, block):
    for rows, columns, outputs in shapes(block):
        case = {"rows": rows, "in": columns, "out": outputs, "bias": rows == 5}
        step = OneStep("linear", case, block.name, library, copies=1)
        step.run()
        w = quant.decode(block.name, step.blocks).reshape(outputs, columns)
        check_products(library, block, step.result(), step.arrays[0], w, step.arrays[2])
        step.close()


@pytest.mark.parametrize("block", WEIGHTS, ids=lambda b: b.name)
def test_second_kernels_give_the_same_bits(block):
    """Kernels for processors that gather fast, or permute bytes, give the bits of those for all, for any number of tokens."""
    kernels = {}
    for level in LEVELS:
        if level.startswith(SECOND):
            library = load(level)
            kernels[library.variant(f"linear_q8_{block.name}")] = library
    if len(kernels) < 2:
        pytest.skip("one kernel for all")
    for rows in (1, 2, 7, 8):
        found = []
        for library in kernels.values():
            step = OneStep("linear", {"rows": rows, "in": 768, "out": 40, "bias": True}, block.name, library, copies=1)
            step.run()
            found.append(step.result())
            step.close()
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("block", WEIGHTS, ids=lambda b: b.name)
def test_head_linear(library, block, transposed):
    """A matrix per head, on input quantized head by head but for transposed ones; a row's bits do not depend on its company."""
    plain = by_name("F32") if transposed else block
    for (rows, columns, outputs), heads, rest in zip(shapes(block), (3, 1, 2), (8, 0, 5), strict=False):
        case = {"rows": rows, "heads": heads, "in": columns, "out": outputs, "rest": rest, "transposed": transposed}
        step = OneStep("head_linear", case, block.name, library, copies=1)
        step.run()
        w = quant.decode(block.name, step.blocks).reshape(heads, outputs, columns)
        w = w.swapaxes(1, 2) if transposed else w
        made, used = w.shape[1:]
        x, found = step.arrays[0].reshape(rows, heads, -1), step.result().reshape(rows, heads, -1)
        for head in range(heads):
            check_products(library, plain, found[:, head, :made], np.ascontiguousarray(x[:, head, :used]), w[head], None)
        assert (found[:, :, made:] == x[:, :, used:]).all()
        step.fill(step.arrays[0][-1:])
        step.run()
        assert step.result()[0].tobytes() == found[-1].tobytes()
        step.close()


@pytest.mark.parametrize("block", WEIGHTS, ids=lambda b: b.name)
def test_expert_linear(library, block):
    """One matrix per item; a part of a stack where there are five rows, more items of one expert than go together at last."""
    for (rows, columns, outputs), used, experts in zip(shapes(block), (2, 1, 3, 2, 17), (4, 5, 6, 3, 2), strict=True):
        used = min(used, experts)
        case = {"rows": 10 * rows if experts == 2 else rows, "experts": experts, "used": used, "in": columns, "out": outputs}
        case |= {"bias": rows == 5, "apart": rows % 4 == 1} | ({"part": (32, 64)} if rows == 5 else {})
        step = OneStep("expert_linear", case, block.name, library, copies=1)
        step.run()
        x, routes, _, b = step.arrays
        chosen = routes[:, used:].astype(int)
        part = slice(32, 96) if rows == 5 else slice(None)
        w = quant.decode(block.name, step.blocks).reshape(experts, outputs, columns)[:, part]
        x, found = x.reshape(len(x), -1, columns), step.result().reshape(len(x), used, -1)
        for j in range(used):
            bias = None if b is None else b[:, part][chosen[:, j]]
            check_products(library, block, found[:, j], x[:, j % x.shape[1]], w[chosen[:, j]], bias)
        step.close()


def test_run_time_and_kernels_agree_on_layouts():
    """The run time never imports kernels, so it repeats a few sizes of theirs."""
    from reflex.backends import cpu, experts, lowering
    from reflex.kernels import dot
    from reflex.kernels.host import attention, execute
    from reflex.kernels.host import experts as kernels

    assert lowering.QUANTIZED_GROUP == dot.QUANTIZED_GROUP
    assert 8 * lowering.STEP_WORDS == execute.STEP_BYTES
    assert cpu.SLOTS == attention.SLOTS
    assert (8 * cpu.SYSCALL_WORD, 8 * cpu.FUTEX_WORD) == (execute.SYSCALL, execute.FUTEX_NUMBER)
    assert experts.OPERANDS + experts.COUNTS == kernels.ENTRIES
    assert kernels.items_at.py_func(1) - kernels.items_at.py_func(0) == experts.ENTRY + experts.CURSOR
    assert (experts.TOGETHER, experts.ROWS_TOGETHER) == (kernels.TOGETHER, kernels.ROWS_TOGETHER)
    gatings = kernels.SOFTMAX, kernels.SIGMOID, kernels.SOFTMAX_OF_CHOSEN
    assert [experts.GATINGS[i] for i in gatings] == ["softmax", "sigmoid", "softmax of chosen"]


def alone_and_together(library, op, case, block):
    """The same rows alone and in any company, bit for bit."""
    step = OneStep(op, case, block.name, library, copies=1)
    step.run()
    together, inputs = step.result(), step.arrays[: len(step.program.steps[0].ins)]
    for row in range(case["rows"]):
        step.fill(*(array[row : row + 1] for array in inputs))
        step.run()
        np.testing.assert_array_equal(step.result()[0], together[row])
    step.close()


@pytest.mark.parametrize("block", WEIGHTS, ids=lambda b: b.name)
def test_tokens_do_not_depend_on_their_tile(library, block):
    alone_and_together(library, "linear", {"rows": 11, "in": 768, "out": 40, "bias": False}, block)
    case = {"rows": 11, "experts": 5, "used": 3, "in": 768, "out": 40, "bias": False}
    for apart in (False, True):
        alone_and_together(library, "expert_linear", case | {"apart": apart}, block)
