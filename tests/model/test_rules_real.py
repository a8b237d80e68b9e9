"""The rules on real models: the default against long predictable tails, any rank, pmi as two sums, hostile seams."""

import math
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from real import locate

import reflex
from reflex.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import labels  # noqa: E402

TAILS = labels.read(ROOT / "bench" / "labelled" / "tails.jsonl")
FRANCE = "The capital of France is"


@pytest.fixture(scope="module", params=["smollm2", "gemma3", "qwen2"])
def model(request):
    with reflex.load(str(locate(request.param)), backend="cpu", context=1024, threads=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def demo():
    with reflex.load("demo", backend="cpu", context=2048, threads=2) as opened:
        yield opened


def test_the_default_picks_paris_over_a_long_predictable_tail(model):
    paris = " Paris"
    tail = " the city of New York in the United States of America"
    decision = model.system1(FRANCE, [" Antidisestablishmentarianism", tail, paris])
    assert (decision.rule, decision.best_text) == ("sum", paris)
    assert decision.best.probability > 0.99
    long = decision.candidates[1]
    assert all(value is not None for value in (long.sum, long.mean, long.per_byte)), "the other rules are reported"


def test_mean_is_fooled_by_predictable_tails_and_the_default_is_not(demo):
    right = {"sum": 0, "mean": 0}
    for item in TAILS:
        for rule in right:
            right[rule] += demo.system1(item.prompt, item.texts, rule=rule).best_index == item.answer
    assert right["sum"] == len(TAILS) and right["mean"] < 0.8 * len(TAILS)


def test_a_candidate_of_any_rank_has_its_exact_log_probability(model):
    logits = model.logits(FRANCE).astype(np.float64)
    order = np.argsort(-logits)
    total = np.log(np.exp(logits - logits.max()).sum()) + logits.max()
    tried = 0
    for rank in (0, 1001, 5000, len(order) // 2):
        token = next(t for t in order[rank:].tolist() if is_its_own(model, t))
        decision = model.system1(FRANCE, [model.tokenizer.piece(token), " Paris"])
        assert decision.candidates[0].token_ids == (token,)
        assert decision.candidates[0].sum == pytest.approx(logits[token] - total, abs=2e-4)
        tried += 1
    assert tried == 4 and decision.candidates[0].sum < -8


def is_its_own(model, token):
    piece = model.tokenizer.piece(token)
    ids = model.tokenize(FRANCE)
    return piece and not model.tokenizer.is_control(token) and model.tokenize(FRANCE.encode() + piece) == [*ids, token]


def test_pmi_is_the_sum_after_the_prompt_less_the_sum_after_the_prior(model):
    candidates = [" Paris", " the city of light", " Antananarivo", " 42"]
    found = model.system1(FRANCE, candidates, rule="pmi", prior="Answer:")
    prior = model.system1("Answer:", candidates)
    for mine, unconditional in zip(found.candidates, prior.candidates, strict=True):
        assert mine.pmi == pytest.approx(mine.sum - unconditional.sum, abs=1e-12)
    plain = model.system1(FRANCE, candidates, rule="pmi")
    session = model.session().core
    start = [model.tokenizer.bos] if model.tokenizer.add_bos else model.tokenize("\n")
    for candidate in plain.candidates:
        values = []
        for count in range(len(candidate.token_ids)):
            session.sync([*start, *candidate.token_ids[:count]])
            values += session.plan.logprobs(0, [candidate.token_ids[count]])
        assert candidate.pmi == candidate.sum - math.fsum(values), "bit for bit"


def test_no_rule_depends_on_the_order_of_candidates(demo):
    candidates = [" Paris", " the city of light", " Antananarivo", " 42", " Paris, of course"]
    for rule in RULES:
        want = {c.text: {**c.to_dict(), "index": 0} for c in demo.system1(FRANCE, candidates, rule=rule).candidates}
        for order in (candidates[::-1], candidates[2:] + candidates[:2]):
            found = demo.system1(FRANCE, order, rule=rule)
            assert {c.text: {**c.to_dict(), "index": 0} for c in found.candidates} == want


HOSTILE = {
    "a combining mark": ("Cafe", ["\u0301", "s", "\u0301s"]),
    "half a character in the prompt": (b"Caf\xc3", [b"\xa9", b"\xa8", b"x"]),
    "bytes that are no text": ("x =", [b"\xff", b"\xe2\x80", " y"]),
    "blanks on both sides": ("It is ", [" the", "the", "  ", " "]),
    "a prompt of one token": ("The", ["re", "n", " x"]),
    "digits": ("Call 123", ["4", "45", " 6", "456789"]),
    "NUL": ("a\0b", ["\0", "c\0"]),
    "a merge over several tokens": ("He said antidisestablish", ["mentarianism", "ment", "!"]),
    "line ends": ("Answer:\n", ["\n", "\nYes", "Yes", "\r\n"]),
    "emoji joined": ("\U0001f469\u200d", ["\U0001f4bb", "\u200d", "x"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_seams_are_scored_as_one_text_or_said(model, name):
    prompt, candidates = HOSTILE[name]
    found = model.system1(prompt, candidates)
    session = model.session().core
    ids = session.encode(prompt)
    for candidate, text in zip(found.candidates, candidates, strict=True):
        whole = session.encode(as_bytes(prompt) + as_bytes(text))
        start = len(whole) - len(candidate.token_ids)
        if tuple(whole[start:]) != candidate.token_ids or whole[:start] != ids[:start] or start == 0:
            assert any("tokenized apart" in note and str(candidate.index) in note for note in found.warnings)
            continue
        assert start == len(ids) or any("end of the prompt" in note for note in found.warnings)
        values = []
        for count in range(start, len(whole)):
            session.sync(whole[:count])
            values += session.plan.logprobs(0, [whole[count]])
        assert candidate.logprobs == tuple(values), "bit for bit"
    assert max(map(len, found.warnings), default=0) < 300


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def test_a_thousand_candidates(demo):
    candidates = [f" {n}" for n in range(1000)]
    found = demo.system1("My lucky number is", candidates)
    assert math.fsum(c.probability for c in found.candidates) == pytest.approx(1)
    assert len(found.warnings) <= 3 and max(map(len, found.warnings)) < 400
    for index in (0, 7, 512, 999):
        assert demo.system1("My lucky number is", [candidates[index]]).candidates[0].logprobs == found.candidates[index].logprobs


TEXT = (ROOT / "docs" / "LOG.md").read_text()


def test_many_candidates_share_the_prompt_and_have_the_tokens_of_the_whole(model):
    """Prompts cut out of real text at any place, continued by the text itself and by others."""
    rng, cut = random.Random(7), 0
    for _ in range(60):
        at = rng.randrange(1000, len(TEXT) - 100)
        prompt = TEXT[at - rng.randrange(200, 900) : at].encode()
        stem = model.tokenizer.stem(prompt, model.tokenizer.encode)
        cut += stem is not None
        tails = [TEXT[at : at + rng.randrange(1, 60)], TEXT[at + 7 :][:9], " yes", "s", "\n\n", "'s", "\u0301", "<|im_end|>", "  "]
        for tail in tails if stem else ():
            assert stem.encode(tail.encode()) == model.tokenizer.encode(prompt + tail.encode())
    assert cut > 40


def test_many_candidates_score_as_few_do(demo):
    prompt = "Here is a long story about the quick brown fox and the lazy dog who lived near the old river bank. " * 4 + "The end"
    candidates = [" of", "s", "ing", " is near", ".", "\n", " fox", "less", " 1", "'s", ""]
    found = demo.system1(prompt, candidates, rule="pmi")
    for candidate in found.candidates[:10]:
        alone = demo.system1(prompt, [candidate.text, *candidates[:2]], rule="pmi").candidates[0]
        assert (alone.token_ids, alone.logprobs, alone.pmi) == (candidate.token_ids, candidate.logprobs, candidate.pmi)
