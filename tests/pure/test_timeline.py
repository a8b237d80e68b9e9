"""Timelines as a notebook uses them: what they hold, what they compute (counted), and that nothing else changes them."""

import math

import pytest
from fakes import FakeTokenizer, session

from reflex import api
from reflex.errors import ContextOverflowError, InvalidInputError, StateError


class NoFile:
    def close(self):
        pass


def opened(**options):
    s = session(**options)
    return api.Model(NoFile(), s.tokenizer, s)


@pytest.fixture
def model():
    return opened()


def rows(model):
    """Rows computed so far."""
    return sum(count for count, _ in model._session.plan.calls)


def test_what_a_timeline_shows(model):
    s = model.session("abc")
    assert (s.ids, len(s), s.text, s.context) == (model.tokenize("abc"), 2, "abc", 64)
    assert repr(s) == "<timeline of 2 of 64 tokens, fake: 'abc'>"
    assert model.session().ids == [] and len(model.session()) == 0
    s.ids.append(5)
    assert len(s) == 2, "a copy"
    assert len(repr(s.append("long " * 12))) < 100


def test_appending_computes_nothing_and_a_result_computes_what_is_missing(model):
    s = model.session("abc").append(" Paris").append([70, 71])
    assert s.ids == [*model.tokenize("abc Paris"), 70, 71] and rows(model) == 0
    s.logits()
    assert rows(model) == 5
    s.append([72]).logits()
    assert rows(model) == 6
    s.logits()
    assert rows(model) == 7, "the last token is computed again: logits belong to the latest evaluation"


def test_logits_are_those_of_the_text(model):
    s = model.session("abcd")
    assert s.logits().dtype == "float32"
    assert (s.logits() == model.logits("abcd")).all()
    best = s.top(3)
    assert [row.id for row in best] == (-s.logits()).argsort(kind="stable")[:3].tolist()
    assert all(row.text == model.detokenize([row.id]) for row in best)
    assert [row.logprob for row in best] == sorted((row.logprob for row in best), reverse=True)
    assert sum(math.exp(row.logprob) for row in s.top(10**6)) == pytest.approx(1)


def test_forks_and_rewinding(model):
    s = model.session("abcd")
    before = s.logits()
    other = s.fork().append(" Paris")
    other.logits()
    s.append(" London")
    assert (other.text, s.text) == ("abcd Paris", "abcd London")
    assert s.rewind(3) is s and s.text == "abcd" and (s.logits() == before).all()
    for wrong in (4, -1, 1.5, "a"):
        with pytest.raises((StateError, InvalidInputError)):
            s.rewind(wrong)
    assert len(s.rewind(0)) == 0


def test_a_shared_prefix_is_computed_once(model):
    s = model.session([10, 11, 12, 13, 14, 15])
    s.logits()
    count = rows(model)
    model.session([10, 11, 12, 13, 20, 21]).logits()
    assert rows(model) == count + 2
    model.generate([10, 11, 12, 13, 20, 21, 22], max_tokens=1)
    assert rows(model) == count + 3


def test_scores_are_those_of_the_text(model):
    s = model.session("The capital of France is")
    assert s.system1([" Paris", " London"]) == model.system1("The capital of France is", [" Paris", " London"])
    assert s.text == "The capital of France is"
    assert s.system1([" Paris"], rule="mean").rule == "mean"


def test_scores_keep_the_tokens_that_are_there(model):
    s = model.session(model.tokenize("P") + model.tokenize("a"))
    assert s.system1(["b"]).candidates[0].token_ids == tuple(model.tokenize("b")), "although ab would be one token"
    assert model.system1("Pa", ["b"]).candidates[0].token_ids == tuple(model.tokenize("ab"))


def test_generating_goes_on_where_it_ended(model):
    s = model.session("abc")
    first = s.generate(max_tokens=3)
    assert s.ids == [*model.tokenize("abc"), *first.token_ids]
    second = s.generate(max_tokens=3)
    whole = model.generate("abc", max_tokens=6)
    assert whole.token_ids == first.token_ids + second.token_ids and whole.text == first.text + second.text
    assert second.prompt_tokens == first.prompt_tokens + 3


def test_streaming_extends_token_by_token(model):
    s = model.session("abc")
    for number, event in enumerate(s.generate(stream=True, max_tokens=4), 1):
        assert len(s) == 2 + number and s.ids[-1] == event.id
    assert model.generate("abc", max_tokens=4).token_ids == tuple(s.ids[2:])


def test_an_interrupt_keeps_the_tokens(model):
    s = model.session("abc")
    model._session.plan.interrupt_at = 4
    with pytest.raises(KeyboardInterrupt):
        s.generate(max_tokens=20)
    assert len(s) == 2 + 3
    assert len(s.generate(max_tokens=2).token_ids) == 2


def test_log_probabilities_of_a_text(model):
    whole = model.tokenize("abcd Paris")
    s = model.session("abcd")
    found = s.logprobs(" Paris")
    assert found.token_ids == tuple(whole[3:]) and found.texts == (" Paris",)
    s2 = model.session("abcd")
    s2.logits()
    assert found.logprobs == tuple(s2.core.plan.logprobs(0, whole[3:4]))
    assert (found.sum, found.perplexity) == (found.logprobs[0], math.exp(-found.mean))
    assert s.text == "abcd" and "perplexity" in found._repr_html_()
    with pytest.raises(AttributeError):
        found.sum = 0


def test_entry_i_is_what_the_logits_after_i_minus_1_say():
    """Five tokens, each predicted by hand-made logits: the first has no log-probability."""
    ids = [60, 61, 62, 63, 64]
    s = session(script={count: ids[count] for count in range(1, 5)})
    model = api.Model(NoFile(), s.tokenizer, s)
    found = model.logprobs(ids)
    assert found.token_ids == tuple(ids) and found.logprobs[0] is None
    assert all(-1e-9 < value <= 0 for value in found.logprobs[1:]), "each was made certain by the tokens before it"
    shifted = model.logprobs([60, 60, 61, 62, 63])
    assert all(value < -50 for value in shifted.logprobs[1:2] + shifted.logprobs[2:])
    assert sum(count for count, _ in s.plan.calls[:1]) == 4, "the last token is only ever predicted"


def test_one_token_alone_has_no_log_probability(model):
    found = model.logprobs([60])
    assert (found.logprobs, found.sum, found.perplexity) == ((None,), 0.0, 1.0)


def test_a_begin_token_starts_the_first_text_only():
    model = opened(add_bos=True)
    s = model.session("ab").append("cd")
    assert s.ids == [0, *FakeTokenizer().encode("ab"), *FakeTokenizer().encode("cd")]
    assert model.session().generate(max_tokens=1).prompt_tokens == 1, "an empty timeline begins as a text does"
    assert model.session().logprobs("ab").logprobs[0] is None


def test_an_empty_timeline_without_a_begin_token_has_nothing_to_go_on_from(model):
    for ask in (lambda s: s.logits(), lambda s: s.generate(), lambda s: s.system1([" a"])):
        with pytest.raises(InvalidInputError, match="empty"):
            ask(model.session())
    with pytest.raises(InvalidInputError):
        model.session("a").append("")


def test_limits_are_exact_and_come_before_any_work():
    model = opened(context=8)
    s = model.session(list(range(10, 18)))
    assert len(s) == 8
    s.logits()
    calls = len(model._session.plan.calls)
    for ask in (lambda: s.append([1]), lambda: s.generate(max_tokens=1), lambda: s.system1([" b"]), lambda: s.logprobs([1])):
        with pytest.raises(ContextOverflowError) as refused:
            ask()
        assert "at most 8 tokens" in str(refused.value) and "9 tokens" in str(refused.value)
    assert len(s) == 8 and len(model._session.plan.calls) == calls
    with pytest.raises(ContextOverflowError, match="9 tokens"):
        model.session(list(range(10, 19)))
    seven = model.session(list(range(10, 17)))
    assert len(seven.generate(max_tokens=1).token_ids) <= 1, "the last place can be filled"
    assert len(model._session.plan.calls) > calls


def test_a_closed_model_gives_no_timeline(model):
    model.close()
    with pytest.raises(StateError):
        model.session()
