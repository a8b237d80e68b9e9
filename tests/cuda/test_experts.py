"""A mixture of experts, from its router to the residual, emulated launch by launch against the references of its steps."""

import numpy
import pytest
import steps

from reflex.program.records import Step

EXPERTS, USED = 4, 2
ROUTE = {"used": USED, "gating": "softmax", "renormalize": True, "scale": 1.0, "groups": 0, "groups_used": 0}


def mixture(kinds=("F32", "F32", "F32"), biased=False, act="silu", route=ROUTE, normed=True, fused=False, tail=True, size=(64, 32)):
    """(program, weights) of x = x + experts(norm(x)). kinds: of gate, up, down; fused: gate and up are one tensor."""
    weights, used, (wide, hidden) = steps.Weights(3), {"used": USED}, size
    weights.add("norm", "F32", wide)
    weights.add("router", "F32", wide, EXPERTS)
    weights.add("choice", "F32", EXPERTS)
    for name, kind, columns, rows in zip("gud", kinds, (wide, wide, hidden), (hidden, hidden, wide), strict=True):
        weights.add(name, kind, columns, rows, EXPERTS)
        weights.add(name + "b", "F32", rows, EXPERTS)
    parts = [{}, {}]
    if fused:
        weights.add("g", kinds[0], wide, 2 * hidden, EXPERTS)
        weights.add("gb", "F32", 2 * hidden, EXPERTS)
        weights.values["u"], weights.tensors["u"] = weights.values["g"], weights.tensors["g"]
        weights.values["ub"], weights.tensors["ub"] = weights.values["gb"], weights.tensors["gb"]
        parts = [{"rows": (0, hidden)}, {"rows": (hidden, hidden)}]
    bias = {name: name + "b" if biased else None for name in "gud"}
    h = "h" if normed else "x"
    made = [
        Step("linear", "r", (h,), ("router", None)),
        Step("route", "routes", ("r",), ("choice" if biased else None,), route),
        Step("expert_linear", "g", (h, "routes"), ("g", bias["g"]), used | parts[0]),
        Step("expert_linear", "u", (h, "routes"), ("u", bias["u"]), used | parts[1]),
        Step("gated", "g", ("g", "u"), (), {"act": act}),
        Step("expert_linear", "d", ("g", "routes"), ("d", bias["d"]), used),
        Step("expert_sum", "y", ("d", "routes"), (), used),
    ]
    if normed:
        made.insert(0, Step("rmsnorm", "h", ("x",), ("norm",), {"eps": 1e-5}))
    if tail:
        made.append(Step("add", "x", ("x", "y"), (), {"scale": 0.5}))
    widths = {
        "x": wide,
        "h": wide,
        "r": EXPERTS,
        "routes": 2 * USED,
        "g": USED * hidden,
        "u": USED * hidden,
        "d": USED * wide,
        "y": wide,
        "logits": 64,
    }
    return steps.program_of(made, widths), weights


def compared(program, weights, rows, reach=0, allowed=lambda name: True, tolerance=2e-3):
    """The Run, after its result was compared."""
    x = numpy.random.default_rng(4).standard_normal((rows, program.width), "float32")
    run = steps.Run(program, weights, (rows, rows, reach), allowed)
    run.put("x", x)
    run.run()
    out = program.steps[-1].out
    want = steps.expected(program, weights, {"x": x})[out]
    found = run.get(out)
    assert numpy.abs(found - want).max() <= tolerance * numpy.abs(want).max()
    return run


@pytest.mark.parametrize(
    "words", [{}, {"biased": True}, {"fused": True, "biased": True}, {"normed": False}, {"tail": False}], ids=str
)
def test_value_by_value(words):
    for rows in (1, 3):
        compared(*mixture(**words), rows)


@pytest.mark.parametrize(
    "words", [{}, {"kinds": ("Q8_0", "Q8_0", "F16"), "biased": True}, {"kinds": ("F16", "Q8_0", "Q4_0")}], ids=str
)
def test_several_rows_on_tiles(words):
    """Results of steady batches do not depend on the company of a row."""
    program, weights = mixture(**{"kinds": ("Q8_0",) * 3} | words)
    run = compared(program, weights, 3, tolerance=5e-3)
    assert run.names().count("expert_tiles_32") == 2 and run.names().count("expert_order") == 1
    found = [steps.Run(program, weights, (rows, rows, 2048)) for rows in (1, 3)]
    x = numpy.random.default_rng(5).standard_normal((3, program.width), "float32")
    for rows, one in zip((1, 3), found, strict=True):
        one.put("x", x[3 - rows :])
        one.run()
    assert (found[0].get("x")[-1] == found[1].get("x")[-1]).all()


QUICK = [("Q4_K", "Q4_K", "Q6_K"), ("Q6_K", "Q6_K", "Q4_K")]


@pytest.mark.parametrize("kinds", QUICK, ids="-".join)
def test_one_row_by_integer_products(kinds):
    run = compared(*mixture(kinds, size=(256, 256)), 1)
    assert run.names() == ["router_row", f"expert_gate_{kinds[0]}", f"expert_down_{kinds[2]}"]
