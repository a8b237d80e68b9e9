"""Activation patching: a tap's own value changes nothing, another's changes what is behind it as a second opinion says."""

import numpy as np
import pytest
from inside import FAMILIES, Inside
from tiny import VOCABULARY, write

import reflex
from reflex.errors import InvalidInputError, StateError, UnsupportedError
from reflex.lab.taps import WALKED

IDS, OTHER = (np.random.default_rng(seed).integers(3, VOCABULARY, 19).tolist() for seed in (5, 6))
OWN = (*FAMILIES, "gpt-oss", "deci", "gpt2", "granite", "bailingmoe2", "olmo2")
CLOSE = 1e-4  # largest difference / standard deviation, of F32 models


@pytest.fixture(scope="module", params=WALKED)
def load(request, tmp_path_factory):
    opened = {}

    def get(name):
        if name not in opened:
            path = write(name, tmp_path_factory.mktemp("tiny") / f"{name}.gguf")
            opened[name] = reflex.load(path, backend=request.param, threads=1)
        return opened[name]

    yield get
    for model in opened.values():
        model.close()


def logits(trace):
    return trace["logits"]


def close(a, b):
    return np.abs(a - b).max() <= CLOSE * np.std(b)


# ---- its own value --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_its_own_value_changes_nothing_for_every_tap(load, name):
    model = load(name)
    whole = model.trace(IDS, "*")
    for tap in whole:
        assert np.array_equal(logits(model.patch(IDS, {tap: whole[tap]})), whole["logits"]), tap
    assert model.patch(IDS, {tap: whole[tap] for tap in whole}, taps="*") == whole, "nor do all at once"
    assert model.patch(IDS, {"*": lambda value: value}, taps="*") == whole
    assert model.patch(IDS, {}, taps="*") == whole


# ---- another's value ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_the_residual_stream_of_another_prompt_gives_its_logits(load, name):
    """All rows at a layer: what is above sees nothing else, so the run is that of the other prompt from there on, to the bit."""
    model = load(name)
    other = model.trace(OTHER, "*")
    for layer in range(3):
        found = model.patch(IDS, {f"layers.{layer}.residual_out": other[f"layers.{layer}.residual_out"]}, taps="*")
        assert np.array_equal(logits(found), other["logits"])
        above = [tap for tap in found if tap.startswith("layers.") and int(tap.split(".")[1]) > layer]
        assert above or layer == 2
        assert all(np.array_equal(found[tap], other[tap]) for tap in above)
    below = model.trace(IDS, "layers.0.*")
    assert all(np.array_equal(found[tap], below[tap]) for tap in below), "what is before the patch is as it was"


@pytest.mark.parametrize("name", FAMILIES)
def test_parts_equal_the_oracle(load, name):
    """One row of the residual stream, a head switched off, a pattern that looks elsewhere, an addition scaled: by a forward pass
    of its own that changes the same."""
    model = load(name)
    oracle, last = Inside(model.path), model.trace(OTHER, "layers.1.residual_out")["layers.1.residual_out"][-1]

    def row(value):
        value[7] = last

    def off(value):
        value[:, 2] = 0

    def ahead(value):
        value[1] = np.eye(len(IDS), dtype=np.float32)

    def double(value):
        value[3:6] *= 2

    cases = {"layers.1.residual_out": row, "layers.0.heads": off, "layers.2.attention": ahead, "layers.1.feed_forward": double}
    cases |= {"embedding": double, "layers.0.attention_out": double, "layers.1.residual_in": row, "final_norm": double}
    for tap, change in cases.items():

        def changed(name, value, tap=tap, change=change):
            value = value.copy()
            if name == tap:
                change(value)
            return value

        want = oracle.forward(IDS, changed)
        found = model.patch(IDS, {tap: change}, taps=("layers.*", "logits"))
        assert close(logits(found), want["logits"]), tap
        assert not close(logits(found), oracle.forward(IDS)["logits"]), "it does change something"
        for shown in ("layers.2.heads", "layers.2.attention", tap):
            assert shown not in found or close(found[shown], want[shown]), f"{tap} is patched, {shown} is read"


def test_routes_can_be_turned(load):
    model = load("qwen3moe")
    oracle = Inside(model.path)
    routes = model.trace(IDS, "layers.1.router")["layers.1.router"].copy()
    routes["expert"] = (routes["expert"] + 1) % 8

    def mixture(h, block, inner=oracle.mixture):
        out, experts, weights = inner(h, block)
        if block != "blk.1.":
            return out, experts, weights
        out = np.zeros_like(h)
        for r, route in enumerate(routes):
            for expert, weight in route:
                gate, up, down = (oracle.weight(f"{block}ffn_{part}_exps.weight")[expert] for part in ("gate", "up", "down"))
                g = gate @ h[r]
                out[r] += weight * (down @ (g / (1 + np.exp(-g)) * (up @ h[r])))
        return out, experts, weights

    oracle.mixture = mixture
    assert close(logits(model.patch(IDS, {"layers.1.router": routes})), oracle.forward(IDS)["logits"])
    for wrong in (8, -1):
        routes["expert"][3, 1] = wrong
        with pytest.raises(InvalidInputError, match="no such expert; expected 0 to 7"):
            model.patch(IDS, {"layers.1.router": routes})


def test_values_may_be_numbers_pairs_and_functions(load):
    model = load("llama-smollm")
    zero = np.zeros_like(model.trace(IDS, "layers.1.attention_out")["layers.1.attention_out"])
    want = logits(model.patch(IDS, {"layers.1.attention_out": zero}))
    for value in (0, 0.0, np.float64(0), zero.astype(float), zero.tolist(), (slice(None), 0), lambda x: 0 * x, lambda x: x.fill(0)):
        assert np.array_equal(logits(model.patch(IDS, {"layers.1.attention_out": value})), want)
    one = logits(model.patch(IDS, {"layers.1.attention_out": (4, 0)}))
    assert np.array_equal(one[:4], model.logits(IDS, every=True)[:4]) and not np.array_equal(one[4], want[4])
    both = model.patch(IDS, {"layers.*.heads": 0}, taps="layers.*.attention_out")
    assert all((both[tap] == 0).all() for tap in both) and len(both) == 3
    assert (logits(model.patch(IDS, {"logits": 1.5})) == 1.5).all()
    assert model.patch(IDS, {"embedding": 0}, taps=[], rows=-1).taps == {}


WRONG = {
    "another shape": ({"layers.1.residual_out": np.zeros((3, 64))}, r"does not fit the tap; expected \[19, 64\]; found \[3, 64\]"),
    "one row for all": ({"embedding": np.zeros(64)}, r"expected \[19, 64\]; found \[64\]; at embedding"),
    "no numbers": ({"embedding": "abc"}, "no value of a tap"),
    "ragged": ({"embedding": [[1], [1, 2]]}, "no value of a tap"),
    "a row that is not there": ({"layers.0.heads": (99, 0)}, r"expected an index and a value for an array of \[19, 9|19, 4"),
    "a function of another shape": ({"layers.0.heads": lambda heads: heads[1:]}, r"found \[18, "),
    "an unknown tap": ({"layers.0.head": 0}, r"no such tap.*layers\.0-2\.heads"),
    "no dictionary": ([("embedding", 0)], "must be a dictionary"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused_in_one_line(load, case):
    model = load("llama-smollm")
    before = model.logits(IDS)
    patches, words = WRONG[case]
    with pytest.raises(InvalidInputError, match=words) as refused:
        model.patch(IDS, patches)
    assert "\n" not in str(refused.value)
    assert np.array_equal(model.logits(IDS), before)


def test_patched_texts_fit_one_batch(load):
    with pytest.raises(InvalidInputError, match="at most 512 tokens; found 513 tokens"):
        load("llama-smollm").patch([5] * 513, {"embedding": 0})


def test_an_interrupt_leaves_the_model_usable(load):
    model = load("qwen3moe")
    timeline = model.session(IDS)
    before = timeline.logits()

    def interrupt(value):
        raise KeyboardInterrupt

    for ask in (lambda: model.patch(IDS, {"layers.1.heads": interrupt}), lambda: within(model, interrupt)):
        with pytest.raises(KeyboardInterrupt):
            ask()
        assert np.array_equal(timeline.logits(), before) and np.array_equal(model.logits(IDS), before)
        assert np.array_equal(logits(model.trace(IDS, "logits"))[-1], before)


def within(model, change):
    with model.patched({"layers.1.heads": change}):
        model.logits(IDS)


# ---- a context ------------------------------------------------------------------------------------------


def test_everything_in_a_context_goes_through_the_patches(load):
    model = load("gemma3")
    plain = model.logits(IDS)
    decision, made = model.system1(IDS, [" the", " quick brown", " qu"]), model.generate(IDS, max_tokens=6).token_ids

    def off(heads):
        heads[:, 1] = 0

    want = logits(model.patch(IDS, {"layers.*.heads": off}))[-1]
    assert np.array_equal(model.logits(IDS), plain), "and is cached, as it is without patches"
    with model.patched({"layers.*.heads": off}):
        assert np.array_equal(model.logits(IDS), want)
        assert model.system1(IDS, [" the", " quick brown", " qu"]) != decision
        cold = model.session(IDS[:9])
        cold.logits()
        assert np.array_equal(cold.append(IDS[9:]).logits(), want), "in two parts"
        with pytest.raises(StateError, match="patched already"), model.patched({"embedding": 0}):
            pass
        assert np.array_equal(model.logits(IDS), want)
    assert np.array_equal(model.logits(IDS), plain)
    assert model.system1(IDS, [" the", " quick brown", " qu"]) == decision
    with model.patched({"layers.*.residual_out": lambda stream: stream, "embedding": lambda stream: stream}):
        assert model.generate(IDS, max_tokens=6).token_ids == made
        assert model.system1(IDS, [" the", " quick brown", " qu"]) == decision, "nothing changes nothing"


def test_scores_under_a_patch_are_those_of_the_patched_text(load):
    """Candidates are branches of one batch: each row is patched as if it stood alone."""
    model = load("llama-smollm")
    shift = np.random.default_rng(1).standard_normal(64).astype(np.float32)

    def steer(stream):
        stream += shift

    found = logits(model.patch([*IDS, 40, 41], {"layers.1.residual_out": steer})).astype(float)
    found -= np.log(np.exp(found).sum(-1, keepdims=True))
    with model.patched({"layers.1.residual_out": steer}):
        decision = model.session(IDS).logprobs([40, 41])
    assert decision.logprobs == pytest.approx([found[-3, 40], found[-2, 41]], abs=1e-4)


@pytest.mark.parametrize("tap", ["layers.0.attention", "logits", "final_norm"])
def test_what_a_context_cannot_replace_is_refused(load, tap):
    with pytest.raises(UnsupportedError, match=f"only be replaced by Model.patch.*{tap}"):
        load("gemma3").patched({tap: 0})
