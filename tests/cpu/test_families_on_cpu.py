"""The compiled backend computes what the reference does, for every family: whole, in steps, and in branches.

Both sides use the same weights, F32 or F16, and no rounding of activations comes between.
"""

import numpy as np
import pytest
from tiny import MODELS, VOCABULARY, write

from reflex.arch import load_spec
from reflex.backends.cpu import Plan
from reflex.backends.reference import Plan as Reference
from reflex.gguf.reader import open_model
from reflex.program import build

CONTEXT = 256
TOLERANCE = 1e-4  # largest difference of a logit, in standard deviations


@pytest.fixture
def plans(name, kind, tmp_path):
    file = open_model(str(write(name, tmp_path / "m.gguf", kind)))
    program = build(load_spec(file), CONTEXT)
    cpu, reference = Plan(file, program, CONTEXT, 2), Reference(file, program, CONTEXT)
    yield cpu, reference
    cpu.close()
    reference.close()
    file.close()


def text(length, seed):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def check(plans, ids, first, positions, shared, branch, outputs, strands=None):
    rows = []
    for plan in plans:
        plan.evaluate(ids, first, positions, shared, branch, outputs, strands=strands or ((0, len(ids), 0 if first else -1, 0),))
        rows.append(np.array([plan.logits(row).tolist() for row in range(len(outputs))]))
    assert np.abs(rows[0] - rows[1]).max() < TOLERANCE * rows[1].std()
    assert plans[0].logprobs(0, [0, 7, VOCABULARY - 1]) == pytest.approx(plans[1].logprobs(0, [0, 7, VOCABULARY - 1]), abs=1e-3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["F16"])
def test_a_half_precision_file(plans):
    zeros = [0] * 40
    check(plans, text(40, 1), 0, list(range(40)), zeros, zeros, [6, 39])
    check(plans, text(1, 2), 40, [40], [0], [0], [0])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["F32"])
def test_prompt_then_steps_then_branches(plans):
    prompt, zeros = text(67, 1), [0] * 67
    check(plans, prompt, 0, list(range(67)), zeros, zeros, list(range(67)))
    for slot in (67, 68):
        check(plans, text(1, slot), slot, [slot], [0], [0], [0])
    ids, positions, shared, branch, ends, strands = [], [], [], [], [], []
    for count, seed in ((1, 2), (33, 3), (4, 4)):
        strands.append((len(ids), count, 0, 1 if count == 4 else -1))
        branch += [69 + len(ids)] * count
        ids += text(count, seed)
        positions += range(69, 69 + count)
        shared += [69] * count
        ends.append(len(ids) - 1)
    check(plans, ids, 69, positions, shared, branch, ends, strands)
