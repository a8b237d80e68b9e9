"""Candidates on real backends, tiny models: packed equals one at a time and no order, company or cache changes a bit."""

import math
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import VOCABULARY, write

from reflex.arch import load_spec
from reflex.backends import cpu, reference
from reflex.gguf.reader import open_model
from reflex.program import build
from reflex.session import Session
from reflex.tree import evaluate

CONTEXT = 160
PREFIX = [10 + 7 * n % 400 for n in range(37)]
# of grouped heads, of a window shorter than the prompt, of formats whose activations are rounded, of layers with a state
MODELS = {"llama": "F32", "gemma3-every-3": "F32", "qwen3": "Q8_0", "llama-biases": "Q4_1"}
MODELS |= {"qwen35": "F32", "lfm2moe": "Q8_0", "mamba2": "F32", "falcon-h1": "F32"}


RUNS = [*((name, "cpu") for name in MODELS), ("llama", "reference"), ("gemma3-every-3", "reference"), ("qwen35", "reference")]


@pytest.fixture(scope="module", params=RUNS, ids="-".join)
def opened(request, tmp_path_factory):
    """A function that makes sessions over one model and backend."""
    name, backend = request.param
    file = open_model(str(write(name, tmp_path_factory.mktemp("tree") / "m.gguf", MODELS[name])))
    program = build(load_spec(file), CONTEXT)
    plan_class = {"cpu": cpu.Plan, "reference": reference.Plan}[backend]

    @contextmanager
    def make(threads=1, context=CONTEXT):
        plan = plan_class(file, program, context, threads)
        yield Session(plan, None)
        plan.close()

    yield make
    file.close()


def alone(session, tail):
    """The definition: every token appended alone to a plain timeline, another timeline before it."""
    session.sync([3, 4])
    values = []
    for count in range(len(tail)):
        session.sync([*PREFIX, *tail[:count]])
        values += session.plan.logprobs(0, [tail[count]])
    return values


tails_of = st.lists(st.lists(st.integers(40, 43), min_size=1, max_size=6), min_size=1, max_size=9)


@settings(max_examples=12)
@given(tails=tails_of, cached=st.integers(0, len(PREFIX)), random=st.randoms(use_true_random=False))
def test_no_company_order_or_cache_changes_a_bit(opened, tails, cached, random):
    with opened() as first, opened(threads=2) as second:
        want = [alone(first, tail) for tail in tails]
        order = list(range(len(tails)))
        random.shuffle(order)
        if cached:
            second.sync([*PREFIX, 5, 6][:cached])
        assert evaluate(second, PREFIX, tails) == want
        assert evaluate(second, PREFIX, [tails[i] for i in order]) == [want[i] for i in order]
        assert evaluate(second, PREFIX, [*tails[:2], [50, 51, 52]])[: len(tails[:2])] == want[:2]
        assert evaluate(second, PREFIX, tails[-1:]) == want[-1:]


def test_a_context_that_ends_early_changes_no_bit(opened):
    tails = [[40 + n % 3, 41 + n % 5, 42, 43 + n, 44] for n in range(30)]
    with opened() as wide, opened(context=len(PREFIX) + 6) as narrow:
        assert evaluate(wide, PREFIX, tails) == evaluate(narrow, PREFIX, tails)


def test_logits_that_do_not_fit_in_memory_at_once(opened, monkeypatch):
    """One pass all the same; their rows come in any order."""
    tails = [[40 + n % 3, 41 + n % 5, 42, 43 + n, 44] for n in range(15)]
    with opened(threads=2) as session:
        want = evaluate(session, PREFIX, tails)
        rows = [session.plan.logits(row).tolist() for row in range(10)]
        best = [session.plan.argmax(row) for row in range(10)]
    for module in (cpu, reference):
        monkeypatch.setattr(module, "LOGITS_BYTES", 4 * VOCABULARY * 4)
    with opened(threads=2) as session:
        assert evaluate(session, PREFIX, tails) == want
        for row in (9, 0, 5, 3, 4, 8, 1):
            assert session.plan.logits(row).tolist() == rows[row] and session.plan.argmax(row) == best[row]
        assert session.plan.logprobs_of_rows([8, 1, 2], [[7], [], [8, 9]])[1] == []


def test_all_one_token_continuations_sum_to_one(opened):
    with opened() as session:
        every = evaluate(session, PREFIX, [[token] for token in range(VOCABULARY)])
    assert math.fsum(math.exp(value) for (value,) in every) == pytest.approx(1, abs=1e-5)
