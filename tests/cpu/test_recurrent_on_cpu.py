"""Every family with recurrent layers on the compiled backend: what was computed before changes no bit, nor does how it is cut."""

import numpy as np
import pytest
from tiny import MODELS, VOCABULARY, write

import reflex
from reflex import arch
from reflex.tree import evaluate

RECURRENT = [name for name, (family, _) in MODELS.items() if arch.find(family).FAMILY.mixer]
TEXT = np.random.default_rng(3).integers(3, VOCABULARY, 300).tolist()
QUANTIZED = ("qwen35", "lfm2", "lfm2moe")  # whose activations are rounded; blocks of 32 fit their rows
TAILS = [[40, 41, 42], [40, 41, 43], [40], [44, 45, 46, 47], [40, 41, 42, 48]]


@pytest.fixture(params=RECURRENT)
def path(request, tmp_path):
    return write(request.param, tmp_path / "m.gguf", "Q8_0" if request.param in QUANTIZED else "F32")


def answers(model):
    """What a person may ask, one thing after another."""
    session = model._session
    scores = evaluate(session, TEXT[:60], TAILS)
    text = model.session(TEXT[:40])
    words = text.generate(max_tokens=6).token_ids
    return scores, words, model.logits(TEXT[:60]).tobytes(), evaluate(session, TEXT[:41], TAILS[:2])


def test_a_used_process_answers_as_a_fresh_one(path):
    with reflex.load(path, backend="cpu", threads=2, context=400) as model:
        fresh = answers(model)
        again = answers(model)
        model.session(TEXT[100:]).generate(max_tokens=3)
        last = answers(model)
        alone = []
        for tail in TAILS:
            values = []
            for count in range(len(tail)):
                model._session.sync([*TEXT[:60], *tail[:count]])
                values += model._session.plan.logprobs(0, [tail[count]])
            alone.append(values)
    assert fresh == again == last
    assert fresh[0] == alone, "packed is one at a time"
    with reflex.load(path, backend="cpu", threads=1, context=400) as model:
        assert answers(model) == fresh, "nor do threads"


def test_tokens_one_at_a_time_are_the_text_at_once(path):
    """To the bit, over many tokens: the state keeps its 32 bits."""
    with reflex.load(path, backend="cpu", threads=1, context=400) as model:
        whole = model.logits(TEXT[:280])
        session = model._session
        session.forget()
        session.sync(TEXT[:10])
        for token in TEXT[10:280]:
            session.append(token)
        assert np.array_equal(np.array(session.plan.logits(0), np.float32), whole)
