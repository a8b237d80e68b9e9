"""Windows of a text: which tokens are seen, which are scored, what is refused; over a model without weights."""

import math

import pytest
from fakes import session

from reflex.errors import ContextOverflowError, InternalError, InvalidInputError
from reflex.lab.perplexity import Scoring, mean
from reflex.lab.windows import Windows, logprobs

TEXT = "aa bc the quick fox is in Paris, and the é dog"


def windows(text=TEXT, add_bos=False, **options):
    return Windows(session(add_bos=add_bos), text, **options)


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("window, stride", [(2, 1), (5, 1), (7, 3), (8, 7), (16, 4), (64, 32), (40, 20)])
def test_sliding_windows_score_every_token_once_and_with_context(add_bos, window, stride):
    found = windows(add_bos=add_bos, window=window, stride=stride)
    begin = [0] if add_bos else []
    scored = []
    for ids, first in found:
        assert len(ids) <= window and ids[: len(begin)] == begin and first >= 1
        scored += ids[first:]
        text = found.ids
        assert any(text[i : i + len(ids) - len(begin)] == ids[len(begin) :] for i in range(len(text)))
    assert scored == (found.ids if add_bos else found.ids[1:])
    assert found.scored == len(scored)
    for ids, first in list(found)[1:]:  # at least what the stride leaves
        assert len(ids) == window and first >= window - stride


def test_the_last_window_keeps_its_length():
    found = windows(window=8, stride=4)
    assert len({len(ids) for ids, _ in found}) == 1


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("window", [3, 4, 5, 8, 9])
def test_windows_like_llama_cpp(add_bos, window):
    """Its loop, written again: chunks of the tokens, the begin token over the first of each, scores from the middle on."""
    found = windows(add_bos=add_bos, window=window, method="llama.cpp")
    tokens = ([0] if add_bos else []) + found.ids
    expected = []
    for i in range(len(tokens) // window):
        chunk = tokens[i * window : (i + 1) * window]
        if add_bos:
            chunk[0] = 0
        half = window // 2
        expected.append((chunk, chunk[half + 1 :]))
    assert [(ids, ids[first:]) for ids, first in found] == expected
    assert found.stride == window and found.scored == sum(len(scored) for _, scored in expected)


def test_special_tokens_in_the_text_are_text():
    assert 1 not in windows("a </s> b").ids


def test_only_so_many_tokens():
    assert windows(tokens=5).ids == windows().ids[:5]


def test_what_it_says_about_itself():
    plain, begun = windows(), windows(add_bos=True, window=8, stride=3)
    assert plain.facts() == {"method": "sliding", "window": 64, "stride": 32, "begin": None, "tokens": len(plain.ids)}
    assert begun.facts() == {"method": "sliding", "window": 8, "stride": 3, "begin": "<s>", "tokens": len(begun.ids)}


REFUSED = {
    "no token": (InvalidInputError, "too short", {"text": ""}),
    "one token and no begin token": (InvalidInputError, "too short", {"text": "a"}),
    "a window beyond the context": (ContextOverflowError, "65", {"window": 65}),
    "a window of one token": (InvalidInputError, "too short", {"window": 1}),
    "a stride without overlap": (InvalidInputError, "1 to 7", {"window": 8, "stride": 8}),
    "a negative stride": (InvalidInputError, "stride", {"stride": -1}),
    "a window that is no number": (InvalidInputError, "window", {"window": "many"}),
    "a negative number of tokens": (InvalidInputError, "number of tokens", {"tokens": -1}),
    "another method": (InvalidInputError, "sliding or llama.cpp", {"method": "hopping"}),
    "less than two windows": (InvalidInputError, "two windows", {"method": "llama.cpp", "window": 64}),
    "a stride beside llama.cpp's": (InvalidInputError, "a stride of 8", {"method": "llama.cpp", "window": 8, "stride": 4}),
    "a half window of nothing": (InvalidInputError, "3 tokens", {"method": "llama.cpp", "window": 2}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    error, words, options = REFUSED[case]
    with pytest.raises(error, match=words) as caught:
        windows(**options)
    assert "\n" not in str(caught.value)


def test_one_token_behind_a_begin_token_is_enough():
    assert windows("a", add_bos=True).scored == 1


# ---- scoring -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 512])
def test_logprobs_are_those_of_the_timeline(most):
    s = session()
    s.plan.most_outputs = most
    ids = s.tokenizer.encode(TEXT)
    alone = session()
    expected = []
    for i in range(4, len(ids)):
        alone.sync(ids[:i])
        expected.append(alone.plan.logprobs(0, [ids[i]])[0])
    assert logprobs(s, ids, 4) == expected
    s.sync(ids)  # the session still knows what the cache holds
    alone.sync(ids)
    assert list(s.plan.logits(0)) == list(alone.plan.logits(0))


def test_scoring_step_by_step():
    scoring = Scoring(session(), TEXT, window=8, stride=4)
    assert scoring.result() is None
    steps = iter(scoring)
    next(steps)
    part = scoring.result()
    assert not part.complete and part.windows == 1 and part.scored == 7
    for _ in steps:
        pass
    whole = scoring.result()
    assert whole.complete and whole.windows == len(scoring) and whole.scored == len(scoring.windows.ids) - 1
    assert whole.perplexity == pytest.approx(math.exp(whole.nats))
    assert whole.nats == pytest.approx(sum(map(sum, scoring.found)) / whole.scored)
    assert whole.error == pytest.approx(whole.perplexity * whole.nats_error)


def test_mean_and_its_error():
    values = [1.0, 2.0, 4.0, 9.0]
    middle, error = mean(values)
    deviation = math.sqrt(sum((v - 4) ** 2 for v in values) / 3)
    assert (middle, error) == (4.0, pytest.approx(deviation / 2))
    assert mean([3.0]) == (3.0, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_no_numbers(value):
    s = session()
    s.plan.logprobs_of_rows = lambda rows, ids: [[value] for _ in rows]
    with pytest.raises(InternalError, match="not numbers"):
        list(Scoring(s, TEXT))
