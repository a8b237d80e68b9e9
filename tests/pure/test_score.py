"""Scoring: packing, invariances, rules, seams, warnings."""

import math
from itertools import permutations
from random import Random

import pytest
from fakes import session

from reflex import tree
from reflex.errors import ContextOverflowError, InternalError, InvalidInputError
from reflex.score import score

PROMPT = "The capital of France is"
CANDIDATES = [" Paris", " London", " the city of light", "!", " Paname"]


def one_at_a_time(prompt, candidate):
    """The definition: every token of prompt + candidate appended alone to a plain timeline."""
    s = session()
    ids, whole = s.encode(prompt), s.encode(prompt + candidate)
    values = []
    for count in range(len(ids), len(whole)):
        s.sync(whole[:count])
        values += s.plan.logprobs(0, [whole[count]])
    return tuple(values)


def test_packed_equals_one_at_a_time():
    s = session()
    decision = score(s, PROMPT, CANDIDATES)
    assert len(s.plan.calls) == 1, "one forward pass"
    for candidate in decision.candidates:
        assert candidate.logprobs == one_at_a_time(PROMPT, candidate.text)
        assert s.tokenizer.decode(candidate.token_ids).decode() == candidate.text


def test_only_needed_rows_have_logits():
    s = session()
    decision = score(s, PROMPT, CANDIDATES)
    rows, outputs = s.plan.calls[0]
    branches = sum(len(c.token_ids) - 1 for c in decision.candidates)
    assert rows == decision.prompt_tokens + branches
    assert outputs == 1 + branches


def test_order_of_candidates_changes_nothing():
    want = {c.text: c.to_dict() for c in score(session(), PROMPT, CANDIDATES[:4]).candidates}
    for order in permutations(CANDIDATES[:4]):
        decision = score(session(), PROMPT, order)
        for candidate in decision.candidates:
            assert {**candidate.to_dict(), "index": 0} == {**want[candidate.text], "index": 0}


def test_adding_a_candidate_changes_no_log_probability():
    few = score(session(), PROMPT, CANDIDATES[:2])
    many = score(session(), PROMPT, CANDIDATES)
    assert [c.logprobs for c in few.candidates] == [c.logprobs for c in many.candidates[:2]]


def test_what_was_cached_changes_nothing():
    want = score(session(), PROMPT, CANDIDATES)
    s = session()
    for before in ("The", PROMPT, PROMPT + " Paris is", "Other", PROMPT):
        s.sync(s.encode(before))
        assert score(s, PROMPT, CANDIDATES) == want
    assert score(s, PROMPT, CANDIDATES) == want
    branches = sum(len(c.token_ids) - 1 for c in want.candidates)
    assert s.plan.calls[-1][0] == 1 + branches, "of the prompt only the last token"


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
@pytest.mark.parametrize("outputs", [1, 3, 64])
@pytest.mark.parametrize("spare", [17, 18, 40])
def test_several_passes_give_the_same_bits(batch, outputs, spare, monkeypatch):
    want = score(session(), PROMPT, CANDIDATES)
    monkeypatch.setattr(tree, "BATCH", batch)
    s = session(context=want.prompt_tokens + spare)
    s.plan.most_outputs = outputs
    assert score(s, PROMPT, CANDIDATES) == want
    assert max(rows for rows, _ in s.plan.calls) <= batch
    assert max(count for _, count in s.plan.calls) <= outputs
    assert score(s, PROMPT, CANDIDATES) == want


def test_the_session_continues_after_scoring():
    s = session()
    score(s, PROMPT, CANDIDATES)
    s.sync(s.encode(PROMPT + " Paris"))
    assert s.plan.calls[-1][0] == 1
    other = session()
    other.sync(other.encode(PROMPT + " Paris"))
    assert s.plan.logits(0).tolist() == other.plan.logits(0).tolist()


def test_probabilities_of_all_one_token_continuations_sum_to_one():
    s = session()
    s.sync(s.encode(PROMPT))
    every = s.plan.logprobs(0, range(s.plan.vocabulary))
    assert math.fsum(map(math.exp, every)) == pytest.approx(1, abs=1e-9)
    letters = [chr(c) for c in range(65, 91) if chr(c) != "P"]
    decision = score(s, PROMPT, letters)
    assert [c.logprobs[0] for c in decision.candidates] == [every[s.tokenizer.encode(text)[0]] for text in letters]
    assert math.fsum(c.probability for c in decision.candidates) == pytest.approx(1, abs=1e-12)


def test_entropy_and_margin():
    decision = score(session(), PROMPT, CANDIDATES)
    shares = sorted((c.probability for c in decision.candidates), reverse=True)
    assert decision.entropy_bits == pytest.approx(-sum(p * math.log2(p) for p in shares))
    assert decision.margin == pytest.approx(shares[0] - shares[1])
    assert decision.best.text == decision.best_text


def test_one_candidate_is_certain():
    decision = score(session(), PROMPT, [" Paris"])
    assert (decision.best_index, decision.candidates[0].probability, decision.margin) == (0, 1.0, 1.0)
    assert decision.entropy_bits == 0.0 and math.copysign(1, decision.entropy_bits) == 1


def test_ties_go_to_the_first_and_duplicates_are_named():
    decision = score(session(), PROMPT, [" Paris", " Paris", " Paris"])
    assert decision.best_index == 0
    assert len({c.logprobs for c in decision.candidates}) == 1
    assert decision.warnings == ("candidates 0 and 1, 0 and 2 are the same tokens: each takes its share of the probability",)


def test_a_seam_that_merges_backs_up_for_all():
    s = session()
    decision = score(s, "It is a ", ["bad", "Paris", "x"])
    a, b, x = decision.candidates
    assert s.tokenizer.decode(a.token_ids) == b" bad" and a.token_ids[0] == s.encode(" b")[0]
    assert b.token_ids == tuple(s.encode(" Paris"))
    assert x.token_ids == tuple(s.encode(" ") + s.encode("x")), "the last prompt token is scored too, so that the scores compare"
    assert "candidates 0, 1 merge with the end of the prompt" in decision.warnings[0]
    assert decision.prompt_tokens == len(s.encode("It is a "))
    assert a.per_byte == pytest.approx(a.sum / 4)
    assert x.logprobs == one_at_a_time("It is a", " x")


def test_a_seam_with_nothing_before_it_keeps_the_prompt_whole():
    decision = score(session(), "a", ["b", "x"])
    assert decision.candidates[0].token_ids == tuple(session().encode("b"))
    assert "tokenized apart" in decision.warnings[0]
    begun = score(session(add_bos=True), "a", ["b", "x"])
    assert begun.candidates[0].token_ids == tuple(session().encode("ab"))


@pytest.mark.parametrize("seed", range(40))
def test_any_texts_equal_the_definition(seed):
    """Random pieces that merge in many ways: every candidate is the plain text prompt + candidate, scored from one common token."""
    random = Random(seed)
    pieces = [" ", "is", " the", "a", "b", "\n", "é", " Paris", "don", "<s>", "x y"]
    prompt = "".join(random.choices(pieces, k=random.randint(1, 5)))
    texts = ["".join(random.choices(pieces, k=random.randint(1, 4))) for _ in range(random.randint(1, 5))]
    s = session(context=40)
    s.sync(s.encode("".join(random.choices(pieces, k=4))))
    decision = score(s, prompt, texts)
    plain, ids = session(context=40), s.encode(prompt)
    for candidate in decision.candidates:
        whole = s.encode(prompt + candidate.text)
        start = len(whole) - len(candidate.token_ids)
        if any("the whole prompt" in note and str(candidate.index) in note for note in decision.warnings):
            whole, start = ids + s.encode(candidate.text), len(ids)
        assert list(candidate.token_ids) == whole[start:] and whole[:start] == ids[:start]
        assert start == len(ids) or any("end of the prompt" in note for note in decision.warnings)
        values = []
        for count in range(start, len(whole)):
            plain.sync(whole[:count])
            values += plain.plan.logprobs(0, [whole[count]])
        assert candidate.logprobs == tuple(values)


def test_terminator_is_scored():
    with_end = score(session(), PROMPT, [" Paris"], terminator="</s>")
    assert with_end.candidates[0].token_ids[-1] == 1
    assert with_end.candidates[0].text == " Paris"
    assert with_end.candidates[0].logprobs == one_at_a_time(PROMPT, " Paris</s>")


@pytest.mark.parametrize(
    ("candidates", "options", "message"),
    [
        ([], {}, "no candidates"),
        (["", ""], {}, "every candidate is empty"),
        (" Paris", {}, "list"),
        (b" Paris", {}, "list"),
        (None, {}, "list"),
        (3, {}, "list"),
        ([" Paris"], {"rule": "total"}, "rule"),
        ([" Paris"], {"temperature": 0}, "temperature"),
        ([" Paris"], {"temperature": math.nan}, "temperature"),
        ([" Paris"], {"temperature": -1.0}, "temperature"),
        ([" Paris"], {"temperature": math.inf}, "temperature"),
        ([" Paris"], {"temperature": "warm"}, "temperature"),
        ([" Paris"], {"temperature": 10**400}, "temperature"),
        ([" Paris"], {"prior": 7}, "str or bytes"),
        ([" Paris"], {"terminator": None}, "str or bytes"),
        ([7], {}, "str or bytes"),
    ],
)
def test_input_without_meaning_is_refused_before_work(candidates, options, message):
    s = session()
    with pytest.raises(InvalidInputError, match=message):
        score(s, PROMPT, candidates, **options)
    assert s.plan.calls == []


def test_overflow_is_refused_before_work():
    s = session(context=30)
    with pytest.raises(ContextOverflowError):
        score(s, PROMPT, ["x" * 30])
    assert s.plan.calls == []
    length = len(s.encode(PROMPT))
    s = session(context=length + 4)
    assert len(score(s, PROMPT, ["abcd"[:3], "wxyz"]).candidates) == 2


def test_logits_that_are_no_numbers_are_an_error():
    s = session()
    s.plan.logprobs = lambda row, ids: [math.nan for _ in ids]
    with pytest.raises(InternalError, match="not finite"):
        score(s, PROMPT, CANDIDATES)


def test_the_result_is_frozen_and_has_the_documented_fields():
    decision = score(session(), PROMPT, CANDIDATES)
    with pytest.raises(AttributeError):
        decision.rule = "mean"
    fields = "command model backend rule best_index best_text entropy_bits margin prompt_tokens candidates warnings"
    assert list(decision.to_dict()) == fields.split()
    fields = "index text token_ids logprobs sum mean per_byte probability pmi"
    assert list(decision.to_dict()["candidates"][0]) == fields.split()
    assert f"<b>{decision.best_text}</b>" in decision._repr_html_()
    assert "a&lt;b" in score(session(), PROMPT, ["a<b"])._repr_html_()
