"""Routers whose logits are no numbers: the experts are experts of the stack all the same, each once, and a weight is no number.

Kernels with more than a row leave the other rows what they are.
"""

import numpy
import pytest
from cases import expert_dot, route
from run import emulate

from reflex.ops import route as op
from reflex.quant.types import by_name

NUMBERS = {"nan": numpy.nan, "inf": numpy.inf, "-inf": -numpy.inf}
CASES = {  # name: (experts, used, gating, renormalize, groups, whether there is a bias)
    "softmax": (8, 2, "softmax", False, 0, False),
    "softmax over the chosen": (8, 2, "softmax", True, 0, False),
    "softmax of chosen": (32, 4, "softmax of chosen", False, 0, False),
    "sigmoid with a bias and groups": (64, 6, "sigmoid", True, 8, True),
    "many experts": (200, 6, "sigmoid", False, 0, True),
}


def sound(weights, ids, experts):
    """Whether ids are different experts and the weights hold something that is no number."""
    whole = ids.astype(int)
    return (
        (whole == ids).all()
        and len(set(whole)) == len(ids)
        and 0 <= min(whole) <= max(whole) < experts
        and numpy.isnan(weights).any()
    )


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("name", CASES)
def test_route(name, value):
    experts, used, gating, renormalize, groups, biased = CASES[name]
    case = {
        "rows": 3,
        "experts": experts,
        "used": used,
        "gating": gating,
        "renormalize": renormalize,
        "groups": groups,
        "bias": biased,
    }
    (logits, bias), words = op.inputs(case | {"scale": 1.0}, numpy.random.default_rng(5))
    made = route.case("", logits, bias, words)
    (wanted,) = made.wanted.values()
    made.args[0][1, experts // 2] = NUMBERS[value]
    out = emulate(made)[-1]
    assert sound(out[1, :used], out[1, used:], experts), out[1]
    numpy.testing.assert_allclose(out[[0, 2]], wanted[[0, 2]], rtol=1e-5, atol=1e-5)


PLACES = [("softmax", "nan"), ("softmax", "-inf"), ("sigmoid", "-inf"), ("softmax of chosen", "inf")]


@pytest.mark.parametrize(("gating", "value"), PLACES)
def test_experts_that_are_chosen_where_they_are_needed(gating, value):
    words = {"gating": gating, "renormalize": True, "scale": 1.0, "routed": False}
    made = expert_dot.gate("", by_name("Q4_K"), 2, 16, 256, numpy.random.default_rng(6), **words)
    made.args[9][3] = NUMBERS[value]
    args = emulate(made)
    assert made.args[9].shape == (expert_dot.EXPERTS,) and sound(args[10][:2], args[10][2:], expert_dot.EXPERTS), args[10]


def test_every_logit_of_a_row():
    (logits, _), words = op.inputs(op.CASES[1], numpy.random.default_rng(7))
    made = route.case("", logits, None, words)
    made.args[0][2] = numpy.nan
    out = emulate(made)[-1]
    assert sound(out[2, :2], out[2, 2:], logits.shape[1])
