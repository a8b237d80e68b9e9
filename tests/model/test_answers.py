"""60 answers scored in one pass on real models: every token's log-probability against llama.cpp's logits and float32 arithmetic."""

import numpy as np
import pytest
from answers import ANSWERS, PROMPT
from llama import Llama
from oracle import Oracle
from real import GOLDEN, locate

import reflex
from reflex.check import TOLERANCE
from reflex.tree import Tree

EXACT = 0.01  # standard deviations of the logits: what the reference backend's float32 arithmetic may differ from another's


class Model:
    """Ids of the answers behind the prompt, and what an oracle's logits say of them."""

    def __init__(self, path, backend):
        self.path = path
        self.opened = reflex.load(path, backend=backend, context=512, threads=2)
        self.prompt = self.opened.tokenize(PROMPT)
        wholes = [self.opened.tokenize(PROMPT + text) for text in ANSWERS]
        assert all(ids[: len(self.prompt)] == self.prompt for ids in wholes), "no answer merges with the prompt"
        self.tails = [ids[len(self.prompt) :] for ids in wholes]

    def decide(self):
        return self.opened.system1(PROMPT, ANSWERS)

    def says(self, logits_of):
        """Per answer: (log-probabilities, standard deviations of the logits that they come from)."""
        for tail in self.tails:
            logits = logits_of(self.prompt + tail)[len(self.prompt) - 1 : -1].astype(np.float64)
            total = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)) + logits.max(axis=1)
            yield logits[np.arange(len(tail)), tail] - total, logits.std(axis=1)


def distances(decision, other):
    """Per scored token: difference in standard deviations."""
    pairs = zip(decision.candidates, other, strict=True)
    return np.concatenate([(np.array(candidate.logprobs) - found) / spread for candidate, (found, spread) in pairs])


@pytest.fixture(scope="module", params=GOLDEN)
def scored(request):
    """(name, Model, its Decision, what the float32 oracle says)."""
    model = Model(locate(request.param), "cpu")
    decision = model.decide()
    oracle = list(model.says(Oracle(model.path).logits))
    yield request.param, model, decision, oracle
    model.opened.close()


def test_all_answers_have_several_tokens_and_share_some(scored):
    _, model, decision, _ = scored
    assert len(decision.candidates) == 60 and min(map(len, model.tails)) >= 2
    assert [list(candidate.token_ids) for candidate in decision.candidates] == model.tails
    assert len(Tree(model.tails).rows()) < sum(len(tail) - 1 for tail in model.tails) - 20


def test_log_probabilities_equal_llama_cpp(scored):
    """Within llama.cpp's own noise: it rounds activations to 8 bits and differs from itself by as much."""
    _, model, decision, oracle = scored
    llama = Llama(model.path, context=256)
    peer = list(model.says(llama.logits))
    llama.close()
    off = distances(decision, peer)
    assert len(off) > 300 and np.abs(off).max() <= TOLERANCE
    mine, theirs = distances(decision, oracle), [(a - b) / spread for (a, _), (b, spread) in zip(peer, oracle, strict=True)]
    ours, peers = (np.sqrt((x**2).mean()) for x in (mine, np.concatenate(theirs)))
    assert ours <= peers, f"{ours:.4f} standard deviations from float32, llama.cpp {peers:.4f}"


def test_log_probabilities_equal_float32(scored):
    _, _, decision, oracle = scored
    off = distances(decision, oracle)
    assert np.abs(off).max() <= TOLERANCE
    shuffled = oracle[1:] + oracle[:1]  # the comparison can fail
    rows = [min(len(a), len(c.logprobs)) for (a, _), c in zip(shuffled, decision.candidates, strict=True)]
    wrong = [np.abs(a[:n] - c.logprobs[:n]).max() for n, (a, _), c in zip(rows, shuffled, decision.candidates, strict=True)]
    assert np.median(wrong) > 1


def test_the_reference_equals_float32(scored):
    name, model, _, oracle = scored
    if name != "smollm2":
        pytest.skip("one model is enough for the slowest backend")
    reference = Model(model.path, "reference")
    off = distances(reference.decide(), oracle)
    reference.opened.close()
    assert np.abs(off).max() <= EXACT


def test_company_order_and_cache_change_no_bit(scored):
    """Packed, a few at a time, the other way round, behind another text."""
    _, model, decision, _ = scored
    want = [candidate.logprobs for candidate in decision.candidates]
    for order in (range(59, -1, -1), range(0, 60, 7), (33,), (2, 0, 1)):
        model.opened.generate("Question: what should a cat eat?", max_tokens=2)
        found = model.opened.system1(PROMPT, [ANSWERS[i] for i in order]).candidates
        assert [candidate.logprobs for candidate in found] == [want[i] for i in order]
        again = model.opened.system1(PROMPT, [ANSWERS[i] for i in order]).candidates
        assert again == found, "with the prompt in the cache"
    alone = model.opened.session().core
    for index in (0, 32):
        values = []
        for count in range(len(model.tails[index])):
            alone.sync(model.prompt + model.tails[index][:count])
            values += alone.plan.logprobs(0, [model.tails[index][count]])
        assert want[index] == tuple(values), "one token at a time"
