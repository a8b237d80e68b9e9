"""Real models in the reference backend: against a float32 oracle of their own, and against recorded llama.cpp output.

tests/real.py says where the models come from.
"""

import numpy as np
import pytest
from oracle import Oracle
from real import GOLDEN, forward, locate

from reflex.arch import load_spec
from reflex.backends.reference import Plan
from reflex.gguf.reader import open_model
from reflex.program import build

AGAINST_ORACLE = 0.002  # largest difference of a logit, in standard deviations
AGAINST_LLAMA = 0.4  # the same against llama.cpp, which rounds activations to 8 bits
CLEAR_MARGIN = 0.5  # logits: in float32, a lead that this rounding does not turn around


@pytest.fixture(scope="module", params=GOLDEN)
def runs(request):
    """(golden record, teacher-forced logits of the reference, of the oracle) for each prompt of a model."""
    golden, path = GOLDEN[request.param], locate(request.param)
    file = open_model(str(path))
    plan = Plan(file, build(load_spec(file)), 128)
    assert plan.vocabulary == golden["vocabulary"]
    ours = [forward(plan, row) for row in golden["prompts"]]
    plan.close()
    file.close()
    oracle = Oracle(path)  # after the plan is gone: each holds the model in float32
    theirs = [oracle.logits(row["ids"] + row["greedy"][:-1])[len(row["ids"]) - 1 :] for row in golden["prompts"]]
    return list(zip(golden["prompts"], ours, theirs, strict=True))


def test_reference_equals_the_oracle(runs):
    for _, ours, theirs in runs:
        assert ours.shape == theirs.shape
        assert (np.abs(ours - theirs).max(axis=1) / theirs.std(axis=1)).max() < AGAINST_ORACLE


def test_clear_greedy_tokens_equal_llama_cpp(runs):
    """Teacher-forced. Clear by the oracle's margin: rounding can also make a close race look clear to llama.cpp."""
    for row, ours, theirs in runs:
        runner_up, best = np.partition(theirs, -2, axis=1)[:, -2:].T
        clear = np.flatnonzero(best - runner_up >= CLEAR_MARGIN)
        assert len(clear) >= 16, "the recording has too few clear steps to mean anything"
        assert [int(ours[i].argmax()) for i in clear] == [row["greedy"][i] for i in clear]


def test_top_logits_are_near_llama_cpp(runs):
    for row, ours, _ in runs:
        worst = max(abs(float(ours[0][token]) - logit) for token, logit in row["top"])
        assert worst < AGAINST_LLAMA * row["std"]
