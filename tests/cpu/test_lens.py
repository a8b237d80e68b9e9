"""The logit lens: the last layer says what the model says, every layer what its residual stream through the model's head says."""

import signal

import numpy as np
import pytest
from inside import FAMILIES, Inside
from tiny import MODELS, VOCABULARY, write

import reflex
from reflex.errors import InvalidInputError
from reflex.lab.taps import WALKED

IDS = np.random.default_rng(8).integers(3, VOCABULARY, 17).tolist()


@pytest.fixture(params=WALKED)
def load(request, tmp_path):
    opened = []

    def get(name):
        path = write(name, tmp_path / f"{name}.gguf")
        opened.append(reflex.load(path, backend=request.param, threads=1))
        return opened[-1]

    yield get
    for model in opened:
        model.close()


@pytest.mark.parametrize("name", [*FAMILIES, "gemma2", "granite", "gemma3-pattern", "gpt2", "minicpm"])
def test_the_last_layer_says_what_the_model_says(load, name):
    """To the bit; several of these scale or cap their logits."""
    model = load(name)
    found = model.lens(IDS, logits=True)
    assert found.logits.shape == (len(found.layers), 17, VOCABULARY) and found.logits.dtype == np.float32
    assert np.array_equal(found.logits[-1], model.logits(IDS, every=True))
    assert not np.array_equal(found.logits[0], found.logits[-1])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_layer_equals_the_oracle(load, name):
    model = load(name)
    oracle = Inside(model.path)
    taps, found = oracle.forward(IDS), model.lens(IDS, logits=True)
    head = "output.weight" if "output.weight" in oracle.tensors else "token_embd.weight"
    for layer in found.layers:
        states = oracle.norm(taps[f"layers.{layer}.residual_out"], "output_norm")
        want = states @ oracle.weight(head).T * np.float32(oracle.number("logit_scale", 1.0))
        assert np.abs(found.logits[layer] - want).max() < 1e-4 * want.std()


def test_numbers_of_a_lens(load):
    model = load("qwen3")
    found = model.lens(IDS, layers=[-1, 0], rows=[3, 16], top=4, logits=True)
    assert (found.layers, found.rows, found.top_ids.shape) == ((0, 2), (3, 16), (2, 2, 4))
    x = found.logits.astype(float)
    logprobs = x - np.log(np.exp(x).sum(-1, keepdims=True))
    order = np.argsort(-x, -1, kind="stable")[..., :4]
    assert np.array_equal(found.top_ids, order)
    np.testing.assert_allclose(found.top_logprobs, np.take_along_axis(logprobs, order, -1), atol=1e-12)
    np.testing.assert_allclose(found.entropies, -(np.exp(logprobs) * logprobs).sum(-1) / np.log(2), atol=1e-12)
    np.testing.assert_allclose(found.next_logprobs[:, 0], logprobs[:, 0, IDS[4]], atol=1e-12)
    assert np.isnan(found.next_logprobs[:, 1]).all(), "nothing follows the last token"
    assert found.top_texts[1][0][2] == model.detokenize([int(found.top_ids[1, 0, 2])])
    bare = model.lens(IDS, layers=[-1, 0], rows=[3, 16], top=4)
    assert bare.logits is None and np.array_equal(bare.top_ids, found.top_ids)
    assert found.next_logprobs[1, 0] == pytest.approx(model.logprobs(IDS).logprobs[4], abs=1e-5)


def test_a_lens_is_a_record(load):
    found = load("gemma3").lens("the quick <b>", rows=slice(0, 3))
    rows = found.table()
    assert len(rows) == 7 * 3 and set(rows[0]) == {"layer", "row", "token", "top", "logprob", "next_logprob", "entropy"}
    page = found._repr_html_()
    assert page.count("<tr>") == 8 and page.count("background:rgba") == 21 and "<b>" not in page
    assert len(found.to_dict()["top_ids"]) == 7 and "7 layers over 3 of" in repr(found)
    with pytest.raises(AttributeError):
        found.rows = ()
    assert found == found.replace() and found != found.replace(rows=())


@pytest.mark.parametrize("wrong", [{"layers": 3}, {"layers": [0, -4]}, {"layers": "all"}, {"top": 0}, {"rows": 17}])
def test_what_is_not_there_is_refused(load, wrong):
    with pytest.raises(InvalidInputError):
        load("qwen3").lens(IDS, **wrong)


def test_many_logits_come_in_parts(load, monkeypatch):
    model = load("gemma2")
    whole = model.lens(IDS)
    monkeypatch.setattr(model._looking(None).walk, "most_logits", 5)
    assert model.lens(IDS) == whole


@pytest.mark.parametrize("ask", ["trace", "lens"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_ctrl_c_leaves_the_model_usable(load, monkeypatch, ask, number):
    """A real signal, which arrives before the step that runs as the `number`-th part."""
    model = load("gemma3")
    timeline = model.session(IDS)
    before, look = timeline.logits(), model._looking(None).walk
    inner, count = look.run, 0

    def run(first, last):
        nonlocal count
        count += 1
        if count == number:
            signal.raise_signal(signal.SIGINT)
        inner(first, last)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(look, "run", run)
        getattr(model, ask)(IDS)
    assert np.array_equal(timeline.logits(), before) and np.array_equal(model.trace(IDS, "logits")["logits"][-1], before)


def test_looking_inside_while_a_text_is_generated(load):
    model = load("qwen3")
    want = model.generate(IDS, max_tokens=6).token_ids
    made = []
    for event in model.generate(IDS, max_tokens=6, stream=True):
        made.append(event.id)
        model.lens(IDS[::-1], layers=0)
        model.patch(IDS[:5], {"layers.1.heads": 0})
    assert tuple(made[:6]) == want


def test_enough_models_scale_or_cap_their_logits():
    assert {"gemma2", "granite", "command-r", "gemma3-pattern", "minicpm"} <= set(MODELS)


def test_a_picture_has_every_cell(load):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from reflex.lab.pictures import spelled

    pyplot.switch_backend("Agg")
    found = load("qwen3").lens("the quick $b", layers=[0, 2])
    axes = found.plot()
    assert [text.get_text() for text in axes.texts] == spelled([best[0] for row in found.top_texts for best in row])
    assert "\\$" in "".join(label.get_text() for label in axes.get_xticklabels()), "no formula"
    axes.figure.canvas.draw()
    pyplot.close(axes.figure)
