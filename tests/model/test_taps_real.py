"""Hidden states and attention of a real model against a float32 forward pass of its own, and a causal experiment on it."""

import numpy as np
import pytest
from inside import Inside
from real import locate

import reflex

FRANCE, SPAIN = "The capital of France is", "The capital of Spain is"
WITHIN = {"reference": 1e-4, "cpu": 0.08}  # |difference| / |value| of a tap; the cpu backend rounds activations to 8 bits
STREAM = {"reference": 1e-4, "cpu": 0.03}  # of hidden states and logits


@pytest.fixture(scope="module")
def oracle():
    return Inside(locate("smollm2"))


@pytest.fixture(scope="module", params=tuple(WITHIN))
def demo(request):
    with reflex.load(str(locate("smollm2")), backend=request.param) as model:
        yield model


def test_hidden_states_of_every_layer(demo, oracle):
    ids = demo.tokenize(FRANCE)
    want, found = oracle.forward(ids), demo.trace(ids, ("embedding", "layers.*", "final_norm", "logits"))
    assert set(want) == set(found)
    worst = {}
    for tap, array in found.items():
        error = float(np.linalg.norm(array - want[tap]) / np.linalg.norm(want[tap]))
        worst[tap.rsplit(".", 1)[-1]] = max(worst.get(tap.rsplit(".", 1)[-1], 0), error)
    print(demo.backend, worst)
    assert max(worst.values()) < WITHIN[demo.backend], worst
    assert max(worst[word] for word in ("residual_in", "residual_out", "attention", "logits")) < STREAM[demo.backend], worst


def test_where_the_country_lies(demo):
    """The residual stream of Spain in the place of France makes the answer that of Spain, while it is early; what lies
    behind the country has read it by the last layer, where the same changes nothing."""
    tokens = demo.trace(FRANCE, taps="embedding").texts
    at, last = tokens.index(" France"), len(tokens) - 1
    spain = demo.trace(SPAIN, "layers.*.residual_out")
    paris, madrid = (demo.tokenize(word)[0] for word in (" Paris", " Madrid"))

    def lead(patches):
        logits = demo.patch(FRANCE, patches, rows=last)["logits"][0]
        return logits[paris] - logits[madrid]

    moved = [
        lead({f"layers.{layer}.residual_out": (at, spain[f"layers.{layer}.residual_out"][at])}) for layer in (0, len(spain) - 1)
    ]
    assert lead({}) > 1 and moved[0] < -1 and moved[1] == lead({})


def test_a_lens_of_a_real_model(demo):
    found = demo.lens(FRANCE, logits=True, rows=-1)
    assert np.array_equal(found.logits[-1, 0], demo.logits(FRANCE))
    assert found.top_texts[-1][0][0] == " Paris" and found.top_texts[0][0][0] != " Paris"
