"""Every family record, as tiny random models in the reference backend: against llama.cpp, and against itself.

The models come from enumerating reflex/arch (tests/tiny.py), so a new family is tested by existing. Tolerances are in
standard deviations of the logits. llama.cpp rounds what every matrix of a half-precision file reads to half precision, and its GELU
is a table of such numbers; where that turns over a choice of experts, tests/ties.py says how near to a tie it was.
"""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from kolibri import Kolibri
from llama import Llama
from oracle import Oracle
from ties import explain
from tiny import MODELS, VOCABULARY, write

from reflex.arch import load_spec
from reflex.backends.reference import Plan
from reflex.errors import ContextOverflowError, InvalidInputError
from reflex.gguf.reader import open_model
from reflex.program import build

CONTEXT = 512
OWN = {"kolibri1": Kolibri}  # families that llama.cpp does not know, with an oracle of their own
LENGTHS = (1, 7, 64, 100)  # the windows of the tiny models are 16 tokens
AGAINST_LLAMA, AGAINST_ITSELF = 0.01, 2e-5  # largest difference / standard deviation


def text(length, seed=7):
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def distance(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.std(b))


def check(model, ids, row, found, wanted):
    """Logits of a row are near enough, or differ by choices of experts alone that are as near to a tie as the logits should be."""
    if distance(found, wanted) >= AGAINST_LLAMA:
        left, gaps = explain(model.file, model.program, CONTEXT, ids[: row + 1], wanted, AGAINST_LLAMA)
        assert gaps and left < AGAINST_LLAMA, f"token {row} of {len(ids)}: {left} with choices turned over whose gaps are {gaps}"


class Tiny:
    """A tiny model on disk, opened by Reflex."""

    def __init__(self, path):
        self.path = path
        self.file = open_model(str(path))
        self.program = build(load_spec(self.file), CONTEXT)

    def plan(self):
        return Plan(self.file, self.program, CONTEXT)


def feed(plan, ids, start=0, outputs=None):
    """Evaluates plain text from slot `start`; float32 [outputs, vocabulary], by default of every token."""
    count = len(ids)
    outputs = list(range(count)) if outputs is None else outputs
    strands = ((0, count, 0 if start else -1, 0),)
    plan.evaluate(ids, start, list(range(start, start + count)), [0] * count, [0] * count, outputs, strands=strands)
    return np.array([plan.logits(row) for row in range(len(outputs))])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Tiny models by name, written once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = Tiny(write(name, tmp_path_factory.mktemp("tiny") / f"{name}.gguf"))
        return made[name]

    yield get
    for model in made.values():
        model.file.close()


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_llama_cpp(tiny, name):
    model = tiny(name)
    oracle = OWN.get(MODELS[name][0], Llama)(model.path, CONTEXT)
    try:
        for length in LENGTHS:
            ids = text(length)
            ours = feed(model.plan(), ids)
            assert ours.shape == (length, VOCABULARY)
            for row, (found, wanted) in enumerate(zip(ours, oracle.logits(ids), strict=True)):
                check(model, ids, row, found, wanted)
    finally:
        oracle.close()


@pytest.mark.parametrize("name", MODELS)
def test_last_logits_of_a_half_precision_file_equal_llama_cpp(tmp_path, name):
    model = Tiny(write(name, tmp_path / "m.gguf", "F16"))
    oracle = OWN.get(MODELS[name][0], Llama)(model.path, CONTEXT)
    try:
        for length in LENGTHS:
            ids = text(length)
            check(model, ids, length - 1, feed(model.plan(), ids, 0, [length - 1])[0], oracle.logits(ids)[-1])
    finally:
        oracle.close()
        model.file.close()


def test_kolibri_chooses_by_the_numbers_of_the_router_themselves(tiny):
    """By their sigmoid, as DeepSeek V3 does it, other experts would be chosen, and the logits would show it."""
    model, ids = tiny("kolibri1"), text(40)
    right, other = Kolibri(model.path), Kolibri(model.path, rule="deepseek")
    wanted, wrong = right.logits(ids), other.logits(ids)
    first, second = (np.sort(oracle.chosen[0], -1) for oracle in (right, other))  # of the first layer, whose input is the same
    assert (first != second).any(-1).sum() >= 3
    routes = next(step.out for step in model.program.steps if step.op == "route")
    plan = model.plan()
    plan.begin(ids, 0, list(range(40)), [0] * 40, [0] * 40, list(range(40)))
    for number, step in enumerate(model.program.steps):
        plan.run(number, number + 1)
        if step.op == "route":
            break
    used = plan.buffers[routes].shape[1] // 2
    assert np.array_equal(np.sort(plan.buffers[routes][:, used:], -1), first)
    assert distance(feed(model.plan(), ids), wanted) < AGAINST_LLAMA < 0.05 < distance(wrong, wanted)


def test_a_last_layer_that_does_not_run(tmp_path):
    """llama.cpp fails an assertion on such a file; without the layer it is another file with the same weights."""
    sizes = {"attention.head_count": 4, "attention.head_count_kv": 2}
    with_it, without, ids = {"layers": 2, "keys": sizes | {"feed_forward_length": [96, 0]}}, {"layers": 1}, text(30)
    without["keys"] = sizes | {"feed_forward_length": 96}
    ours, expected = (
        feed(Tiny(write("deci", tmp_path / f"{i}.gguf", **changes)).plan(), ids, 0, [3, 29])
        for i, changes in enumerate((with_it, without))
    )
    assert np.array_equal(ours, expected)


@pytest.mark.parametrize("name", MODELS)
def test_all_at_once_equals_step_by_step(tiny, name):
    model, ids = tiny(name), text(40)
    whole, plan = feed(model.plan(), ids), model.plan()
    steps = np.concatenate([feed(plan, [token], i) for i, token in enumerate(ids)])
    assert distance(steps, whole) < AGAINST_ITSELF
    plan = model.plan()
    parts = np.concatenate([feed(plan, ids[:17], 0), feed(plan, ids[17:], 17)])
    assert distance(parts, whole) < AGAINST_ITSELF


@pytest.mark.parametrize("name", MODELS)
def test_only_wanted_rows_are_computed_and_are_the_same(tiny, name):
    model, ids = tiny(name), text(21)
    whole = feed(model.plan(), ids)
    some = [0, 3, 20]
    assert distance(feed(model.plan(), ids, 0, some), whole[some]) < AGAINST_ITSELF
    plan = model.plan()
    assert feed(plan, ids[:20], 0, []).size == 0  # nothing wanted: the cache is filled all the same
    assert distance(feed(plan, ids[20:], 20), whole[20:]) < AGAINST_ITSELF


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prompt_length", [3, 40])
def test_branches_equal_separate_sequences(tiny, name, prompt_length):
    """A prompt and its candidates in one batch, each candidate seeing the prompt and itself only."""
    model, prompt = tiny(name), text(prompt_length)
    candidates = [text(n, seed) for n, seed in ((3, 1), (1, 2), (22, 3))]
    ids, positions, shared, branch, ends = list(prompt), list(range(prompt_length)), [0] * prompt_length, [0] * prompt_length, []
    for candidate in candidates:
        start = len(ids)
        ids += candidate
        positions += range(prompt_length, prompt_length + len(candidate))
        shared += [prompt_length] * len(candidate)
        branch += [start] * len(candidate)
        ends.append(len(ids) - 1)
    together = model.plan()
    strands = [(0, prompt_length, -1, 1)]
    for candidate, end in zip(candidates, ends, strict=True):
        strands.append((end + 1 - len(candidate), len(candidate), 1, -1))
    together.evaluate(ids, 0, positions, shared, branch, ends, strands=strands)
    for row, candidate in enumerate(candidates):
        alone = feed(model.plan(), prompt + candidate, 0, [prompt_length + len(candidate) - 1])
        assert distance(together.logits(row), alone[0]) < AGAINST_ITSELF
    later = model.plan()  # the same branches, one batch each, in slots after the prompt
    feed(later, prompt)
    for candidate in candidates:
        count, slot = len(candidate), prompt_length + 30
        positions = list(range(prompt_length, prompt_length + count))
        later.evaluate(candidate, slot, positions, [prompt_length] * count, [slot] * count, [count - 1], strands=[(0, count, 0, 1)])
        alone = feed(model.plan(), prompt + candidate, 0, [prompt_length + count - 1])
        assert distance(later.logits(0), alone[0]) < AGAINST_ITSELF


def test_results_of_a_row_agree_with_its_logits(tiny):
    model = tiny("llama")
    plan = model.plan()
    x = feed(plan, text(5), 0, [4])[0].astype(np.float64)
    expected = x - x.max() - np.log(np.exp(x - x.max()).sum())
    assert np.allclose(plan.logprobs(0, [0, 5, 511]), expected[[0, 5, 511]], atol=1e-12)
    assert plan.argmax(0) == int(np.argmax(x))
    assert plan.sample(0, 0.0, 0, 1.0, 0.0, 0.7) == plan.argmax(0)
    assert plan.sample(0, 1.0, 1, 1.0, 0.0, 0.999) == plan.argmax(0)
    view = plan.logits(0)
    assert (view.format, view.shape) == ("f", (VOCABULARY,))


@pytest.mark.parametrize(
    "error, changes",
    [
        (InvalidInputError, {"ids": []}),
        (InvalidInputError, {"ids": [1, VOCABULARY]}),
        (InvalidInputError, {"ids": [-1, 1]}),
        (InvalidInputError, {"positions": [0]}),
        (InvalidInputError, {"shared": [0, 6]}),
        (InvalidInputError, {"branch": [6, 0]}),
        (InvalidInputError, {"outputs": [1, 0]}),
        (InvalidInputError, {"outputs": [1, 1]}),
        (InvalidInputError, {"outputs": [2]}),
        (ContextOverflowError, {"first_slot": CONTEXT - 1}),
        (ContextOverflowError, {"first_slot": -1}),
    ],
)
def test_impossible_batches_are_refused(tiny, error, changes):
    batch = {"ids": [1, 2], "first_slot": 4, "positions": [4, 5], "shared": [0, 0], "branch": [0, 0], "outputs": [1]}
    plan = tiny("llama").plan()
    plan.evaluate(**batch)
    with pytest.raises(error):
        plan.evaluate(**(batch | changes))
    with pytest.raises(InvalidInputError, match=f"0 to {VOCABULARY - 1}"):
        plan.logprobs(0, [0, -1])


def test_steps_may_be_run_one_by_one(tiny):
    model = tiny("gemma3")
    plan, ids = model.plan(), text(9)
    plain = feed(plan, ids)
    plan.begin(ids, 0, list(range(9)), [0] * 9, [0] * 9, list(range(9)))
    for number, step in enumerate(model.program.steps):
        plan.run(number, number + 1)
        assert plan.buffers[step.out].shape == (9, model.program.widths[step.out])
    assert np.array_equal(plan.buffers["logits"], plain)


WIDE = {"width": 256, "feed_forward": 256, "head_dim": 64}  # the largest blocks hold 256 values
FORMATS = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
FORMATS += ("IQ4_NL", "IQ4_XS", "TQ2_0", "MXFP4")


@pytest.mark.parametrize("kind", FORMATS)
def test_every_block_format_equals_the_oracle(tmp_path, kind):
    """Embedding rows and whole matrices are decoded by different paths; all matrices of this file are in `kind`."""
    model = Tiny(write("qwen3", tmp_path / "m.gguf", kind, layers=2, **WIDE))
    types = {tensor.type for tensor in model.file.tensors.values() if len(tensor.shape) == 2}
    assert types == {int(GGMLQuantizationType[kind])}
    ids = text(20)
    assert distance(feed(model.plan(), ids), Oracle(model.path).logits(ids)) < 1e-4
    model.file.close()
