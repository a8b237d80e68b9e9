"""Scoring and generation on the real demo model: against llama.cpp, between backends, and bit for bit against themselves."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from llama import Llama

import reflex
from reflex import demo
from reflex.api import plain_batch
from reflex.check import record
from reflex.errors import ContextOverflowError, InvalidInputError
from reflex.sample import choose

PROMPT = "Question: what should I do when the pan on the stove catches fire?\nAnswer:"
CANDIDATES = [
    " Turn off the heat and cover it with a lid.",
    " Pour water on it!",
    " Call the fire brigade, then leave the house.",
    " Nothing.",
    " It depends on the size of the fire, the pan and the kitchen.",
    " Ring 112",
    " Blow",
    " Use a fire extinguisher",
    " use a wet towel",
    " 1. Stay calm. 2. Switch off the stove.",
    "\nStay calm.",
    " Ça dépend",
    " 水をかけないで",
    " Антананариву",
    " 🔥🔥🔥",
    " def fire(pan):\n    return None",
    " Antidisestablishmentarianism",
    " the the the the",
    " Turn off the heat",
    " zxqvj 0xDEADBEEF",
]
LOOSE = 0.4  # standard deviations of the logits: llama.cpp rounds activations to 8 bits, and differs from itself by this much
LONG = "The quick brown fox jumps over the lazy dog. " * 54


@pytest.fixture(scope="module", params=["reference", "cpu"])
def model(request):
    with reflex.load(demo.path(), backend=request.param, context=2048, threads=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def cpu():
    with reflex.load("demo", backend="cpu", context=2048, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def reference():
    with reflex.load("demo", backend="reference", context=256) as opened:
        yield opened


@pytest.fixture(scope="module")
def peer(cpu):
    """Per candidate: its tokens' log-probabilities by llama.cpp, and the deviation of the logits they come from."""
    llama = Llama(demo.path(), context=256)
    found = []
    for text in CANDIDATES:
        start, whole = len(cpu.tokenize(PROMPT)), cpu.tokenize(PROMPT + text)
        logits = llama.logits(whole)[start - 1 : -1].astype(np.float64)
        found.append((logprobs_of(logits, whole[start:]), logits.std(axis=1)))
    llama.close()
    return found


def log_softmax(logits):
    """Over the last axis of [tokens, vocabulary]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def logprobs_of(logits, ids):
    """Log-softmax of [tokens, vocabulary] at one id per row."""
    return log_softmax(logits)[np.arange(len(ids)), ids]


def distances(decision, peer):
    """Per scored token: difference from llama.cpp in standard deviations."""
    pairs = zip(decision.candidates, peer, strict=True)
    return np.concatenate([(np.array(c.logprobs) - logprobs) / std for c, (logprobs, std) in pairs])


def test_log_probabilities_against_the_peer(model, peer):
    decision = model.system1(PROMPT, CANDIDATES)
    off = distances(decision, peer)
    assert len(off) > 100
    assert np.abs(off).max() <= LOOSE
    assert np.sqrt((off**2).mean()) <= LOOSE / 3
    sums = [logprobs.sum() for logprobs, _ in peer]
    if np.diff(np.sort(sums)[-2:])[0] > 2:
        assert decision.best_index == int(np.argmax(sums))


def test_packed_equals_one_candidate_at_a_time(model):
    together = model.system1(PROMPT, CANDIDATES)
    for index in (0, 3, 8, 15) if model.backend == "cpu" else (3, 6):
        alone = model.session().core
        ids, whole = alone.encode(PROMPT), alone.encode(PROMPT + CANDIDATES[index])
        values = []
        for count in range(len(ids), len(whole)):
            alone.sync(whole[:count])
            values += alone.plan.logprobs(0, [whole[count]])
        if model.backend == "cpu":
            assert together.candidates[index].logprobs == tuple(values), "bit for bit"
        else:
            assert together.candidates[index].logprobs == pytest.approx(values, abs=2e-3)


def all_logprobs(model, ids):
    """float64 [tokens, vocabulary] of a plain text."""
    session = model.session().core
    session.evaluate(plain_batch(0, ids))
    return log_softmax(np.array([np.asarray(session.plan.logits(row)) for row in range(len(ids))], np.float64))


def test_cpu_is_no_further_from_float32_than_the_peer(cpu, reference):
    llama = Llama(demo.path(), context=256)
    mine, theirs = [], []
    for text in CANDIDATES[:16:2]:
        ids = cpu.tokenize(PROMPT + text)
        exact = all_logprobs(reference, ids)
        spread = exact.std(axis=1, keepdims=True)
        mine.append((all_logprobs(cpu, ids) - exact) / spread)
        theirs.append((log_softmax(llama.logits(ids).astype(np.float64)) - exact) / spread)
    llama.close()
    ours, peers = (np.sqrt((np.concatenate(x) ** 2).mean()) for x in (mine, theirs))
    assert ours <= peers, f"{ours:.4f} against {peers:.4f} standard deviations"


def test_order_caching_and_company_change_no_bit(cpu):
    want = {c.text: c.logprobs for c in cpu.system1(PROMPT, CANDIDATES).candidates}
    with reflex.load("demo", backend="cpu", context=2048, threads=2) as other:
        for prompt_before, candidates in (
            (None, CANDIDATES[::-1]),
            ("Question: what", CANDIDATES[5:9]),
            (PROMPT + " Turn off", CANDIDATES[7:8]),
            (LONG, CANDIDATES[::2]),
            (PROMPT, CANDIDATES),
        ):
            if prompt_before:
                other.generate(prompt_before, max_tokens=2)
            for candidate in other.system1(PROMPT, candidates).candidates:
                assert candidate.logprobs == want[candidate.text]


def test_long_prompts_in_batches_change_no_bit(cpu):
    want = cpu.system1(LONG, CANDIDATES[:3])
    assert want.prompt_tokens > 512
    session = cpu.session().core
    ids = session.encode(LONG)
    for count in (7, 8, 300, len(ids) - 1):
        session.sync(ids[:count])
    assert cpu.system1(LONG, CANDIDATES[:3]) == want


def test_every_token_of_the_vocabulary_has_its_share(cpu):
    session = cpu.session().core
    session.sync(session.encode(PROMPT))
    every = session.plan.logprobs(0, list(range(session.plan.vocabulary)))
    assert math.fsum(map(math.exp, every)) == pytest.approx(1, abs=1e-5)
    assert min(every) < -15 and max(every) <= 0
    logits = np.array(session.plan.logits(0), np.float64)
    assert np.allclose(every, logits - logits[0] + logprobs_of(logits[None], [0]), atol=1e-5)
    assert session.plan.argmax(0) == int(logits.argmax())


SETTINGS = [(0.7, 0, 1.0, 0.0), (1.0, 40, 1.0, 0.0), (1.3, 0, 0.9, 0.0), (2.0, 0, 1.0, 0.05), (1.0, 50, 0.9, 0.02)]


@pytest.mark.parametrize("settings", SETTINGS)
def test_sampling_follows_the_definition(cpu, settings):
    session = cpu.session().core
    session.sync(session.encode(PROMPT))
    logits = list(session.plan.logits(0))
    draws = [(step + 0.5) / 8 for step in range(8)]
    wrong = [random for random in draws if session.plan.sample(0, *settings, random) != choose(logits, *settings, random)]
    assert len(wrong) <= 1, "a draw may fall on the border of two tokens, where rounding decides"


def test_seams(cpu):
    plain = cpu.system1("The capital of France is", [" Paris", " London"])
    assert plain.best_text == " Paris" and plain.warnings == ()
    spaced = cpu.system1("The capital of France is ", ["Paris", "London"])
    assert spaced.best_text == "Paris" and "merge with the end of the prompt" in spaced.warnings[0]
    assert [c.logprobs for c in spaced.candidates] == [c.logprobs for c in plain.candidates]


def test_generation_reads_like_text(model):
    result = model.generate("The capital of France is", max_tokens=2)
    assert result.text.startswith(" Paris")
    assert (result.prompt_tokens, len(result.token_ids), result.finish_reason) == (5, 2, "length")
    stopped = model.generate("The capital of France is", max_tokens=8, stop=["ris"])
    assert (stopped.text, stopped.finish_reason) == (" Pa", "stop")


def test_a_chat_turn_ends_at_the_end_token(cpu):
    prompt = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
    result = cpu.generate(prompt, max_tokens=200)
    assert result.finish_reason == "stop" and "<|im_end|>" not in result.text


def test_same_seed_same_text(cpu):
    first = cpu.generate(PROMPT, max_tokens=12, temperature=1.0, seed=5)
    assert cpu.generate(PROMPT, max_tokens=12, temperature=1.0, seed=5) == first
    assert cpu.generate(PROMPT, max_tokens=12, temperature=1.0, seed=6).text != first.text


def test_backends_agree_step_by_step(cpu, reference):
    found = cpu.check(reference, PROMPT, steps=6)
    assert found.same, found
    assert 0 < found.worst < LOOSE
    assert cpu.check(record(reference.session().core, PROMPT, steps=3), PROMPT, steps=3).same
    assert not cpu.check(reference, PROMPT, steps=2, tolerance=1e-6).same


def test_logits_and_trace(cpu, reference):
    text = "The capital of France is"
    every = reference.logits(text, every=True)
    assert every.shape == (5, reference.tokenizer.size) and every.dtype == np.float32
    beside = cpu.trace(text, "logits", backend="reference")
    assert np.array_equal(beside["logits"], every)
    assert list(reference.trace(text, taps=["logits"])) == ["logits"]
    assert (reference.logits(text, every=True) == every).all(), "tracing leaves the timeline usable"
    rows = [cpu.logits(cpu.detokenize(cpu.tokenize(text)[:count])) for count in range(1, 6)]
    assert (cpu.logits(text, every=True) == rows).all(), "bit for bit"


def test_models_may_be_opened_and_closed_again():
    def mapped():
        return int(Path("/proc/self/statm").read_text().split()[0])

    pages = []
    for _ in range(5):
        with pytest.raises(InvalidInputError, match="context"):
            reflex.load("demo", context=10**9)
        with reflex.load("demo", context=64, threads=2) as opened:
            opened.generate("a", max_tokens=1)
        pages.append(mapped())
    growth = [after - before for before, after in pairwise(pages)]  # once or twice by the memory that libc keeps for a new thread
    assert sorted(growth)[1] <= 1000, "mapped pages stay the same"


def test_overflow_on_a_small_context():
    with reflex.load("demo", backend="cpu", context=32) as small:
        with pytest.raises(ContextOverflowError, match="at most 32 tokens"):
            small.generate(PROMPT, max_tokens=30)
        assert small.generate("The capital of France is", max_tokens=27).prompt_tokens == 5
        assert len(small.system1("The capital of France is", CANDIDATES[:6]).candidates) == 6
