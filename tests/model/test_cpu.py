"""Real models in the cpu backend: how far its 8-bit activations are from float32, next to llama.cpp on the same file."""

import numpy as np
import pytest
from llama import Llama
from oracle import Oracle
from real import GOLDEN, forward, locate

from reflex.arch import load_spec
from reflex.backends.cpu import Plan
from reflex.gguf.reader import open_model
from reflex.program import build

CLEAR_MARGIN = 0.5  # logits: in float32, a lead that the rounding of activations does not turn around
LOOSE = 0.4  # standard deviations of the logits: how far llama.cpp is from itself


@pytest.fixture(scope="module", params=GOLDEN)
def runs(request):
    """Per recorded prompt: (record, logits of the cpu backend, of llama.cpp, of the float32 oracle)."""
    golden, path = GOLDEN[request.param], locate(request.param)
    file = open_model(str(path))
    plan = Plan(file, build(load_spec(file)), 128, threads=2)
    ours = [forward(plan, row) for row in golden["prompts"]]
    plan.close()
    file.close()
    llama, oracle = Llama(path, context=128), Oracle(path)
    peers, exact = [], []
    for row in golden["prompts"]:
        ids, first = row["ids"] + row["greedy"][:-1], len(row["ids"]) - 1
        peers.append(llama.logits(ids)[first:])
        exact.append(oracle.logits(ids)[first:])
    llama.close()
    return list(zip(golden["prompts"], ours, peers, exact, strict=True))


def distance(logits, exact):
    """Root mean square difference over everything, in standard deviations of the exact logits."""
    differences = [(a - b) / b.std(axis=1, keepdims=True) for a, b in zip(logits, exact, strict=True)]
    return np.sqrt(np.mean(np.concatenate(differences) ** 2))


def test_cpu_is_no_further_from_float32_than_llama_cpp(runs):
    _, ours, peers, exact = zip(*runs, strict=True)
    mine, theirs = distance(ours, exact), distance(peers, exact)
    assert mine <= theirs, f"{mine:.4f} against {theirs:.4f} standard deviations"


def test_clear_greedy_tokens_equal_llama_cpp(runs):
    for row, ours, _, exact in runs:
        runner_up, best = np.partition(exact, -2, axis=1)[:, -2:].T
        clear = np.flatnonzero(best - runner_up >= CLEAR_MARGIN)
        assert len(clear) >= 16, "the recording has too few clear steps to mean anything"
        assert [int(ours[i].argmax()) for i in clear] == [row["greedy"][i] for i in clear]


def test_top_logits_are_near_llama_cpp(runs):
    for row, ours, _, _ in runs:
        worst = max(abs(float(ours[0][token]) - logit) for token, logit in row["top"])
        assert worst < LOOSE * row["std"]
