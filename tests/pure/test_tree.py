"""The packing of candidates: what is evaluated, how often, and that no company, order or cache changes a bit."""

from math import log2

import pytest
from fakes import FakeTokenizer, session
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex import tree
from reflex.session import Session
from reflex.tree import Tree, evaluate

PREFIX = [5, 6, 7, 8]


def inner(tails):
    """The distinct beginnings that predict something, but the empty one."""
    return {tuple(tail[:count]) for tail in tails for count in range(1, len(tail))}


def alone(prefix, tail):
    """The definition: every token appended alone to a plain timeline."""
    s, values = session(context=400), []
    for count in range(len(tail)):
        s.sync([*prefix, *tail[:count]])
        values += s.plan.logprobs(0, [tail[count]])
    return values


tails_of = st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=7), min_size=1, max_size=12)


@settings(max_examples=150)
@given(tails_of, st.integers(0, 6), st.randoms(use_true_random=False))
def test_one_pass_of_every_distinct_token(tails, cached, random):
    s = session(context=400)
    if cached:
        s.sync([*PREFIX, 9, 10][:cached])
    s.plan.calls.clear()
    found = evaluate(s, PREFIX, tails)
    rows = len(PREFIX) - min(cached, len(PREFIX) - 1) + len(inner(tails))
    assert s.plan.calls == [(rows, 1 + len(inner(tails)))], "one pass, each row once, logits of rows that predict something"
    assert found == [alone(PREFIX, tail) for tail in tails]
    order = list(range(len(tails)))
    random.shuffle(order)
    assert evaluate(s, PREFIX, [tails[i] for i in order]) == [found[i] for i in order]
    assert evaluate(session(context=400), PREFIX, tails[:1]) == found[:1]


@settings(max_examples=150)
@given(tails_of, st.integers(1, 9), st.integers(1, 9), st.integers(0, 12), st.booleans())
def test_several_passes_find_the_same_bits(tails, batch, outputs, spare, few_words):
    """In batches of few rows, few logits, few lists of runs, and in contexts down to the least that holds the longest candidate."""
    want = evaluate(session(context=400), PREFIX, tails)
    s = session(context=len(PREFIX) + max(map(len, tails)) + spare)
    s.plan.most_outputs = outputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "BATCH", batch)
        if few_words:
            patch.setattr(tree, "RUN_WORDS", tree.SPARE_WORDS)
        assert evaluate(s, PREFIX, tails) == want
    assert max(rows for rows, _ in s.plan.calls) <= batch
    assert max(count for _, count in s.plan.calls) <= outputs
    assert sum(count for _, count in s.plan.calls) == 1 + len(inner(tails)), "no logits twice"
    assert sum(rows for rows, _ in s.plan.calls) <= len(PREFIX) + 2 * len(inner(tails)), "no token more than twice"


def test_what_several_candidates_share_is_shared():
    found = Tree([[3, 4, 5], [3, 4, 6], [3, 4], [7], [3, 4, 5]])
    assert [found.tokens[node] for node in found.rows()] == [3, 4]
    assert found.paths[0] == found.paths[4] and found.paths[0][:2] == found.paths[1][:2] == found.paths[2]
    assert found.place(found.paths[1][2]) == "candidate 1, token 2"
    assert evaluate(session(), PREFIX, [[], [4]])[0] == []


class Counting:
    """A plan that computes nothing and counts."""

    steady, most_outputs, vocabulary = True, 512, 64

    def __init__(self, context):
        self.context = context
        self.rows, self.runs, self.words = [], 0, 0

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, runs, steady):
        self.rows.append(len(ids))
        own = {id(found): len(found) for found in runs if found}
        self.runs = max(self.runs, *own.values(), 0) if own else self.runs
        self.words = max(self.words, sum(1 + 2 * count for count in own.values()))

    def logprobs_of_rows(self, rows, ids):
        return [[-1.0] * len(own) for own in ids]


def many(shape, count=1000, length=200):
    """1,000 candidates of 200 tokens that share all but their ends, nothing, or beginnings of every length."""
    if shape == "ends":
        return [[7] * (length - 3) + [n % 10, n // 10 % 10, n // 100] for n in range(count)]
    if shape == "apart":
        return [[n % 10, n // 10 % 10, n // 100] + [7] * (length - 3) for n in range(count)]
    return [[7] * (n % length) + [8 + n // length] * (length - n % length) for n in range(count)]


@pytest.mark.parametrize("context", [230, 4096, 1 << 20])
@pytest.mark.parametrize("shape", ["ends", "apart", "comb"])
def test_a_thousand_candidates_of_200_tokens(shape, context):
    """Rows grow with the distinct tokens and not with their square, whatever the context; paths have few runs."""
    tails, plan = many(shape), Counting(context)
    found = evaluate(Session(plan, FakeTokenizer()), PREFIX, tails)
    assert [len(values) for values in found] == [200] * 1000
    nodes = len(inner(tails))
    assert len(PREFIX) + nodes <= sum(plan.rows) <= len(PREFIX) + 2 * nodes
    if context > nodes:
        assert sum(plan.rows) == len(PREFIX) + nodes
        assert len(plan.rows) == -(-(len(PREFIX) + nodes) // tree.BATCH)
    assert plan.runs <= log2(nodes) and plan.words <= tree.RUN_WORDS


def test_slots_behind_the_walk_are_free_again():
    """A context of one batch and a little is enough for any number of short candidates, in as few passes as a large one."""
    tails, plan = [[n % 50, n // 50, 3] for n in range(2500)], Counting(len(PREFIX) + tree.BATCH + 8)
    evaluate(Session(plan, FakeTokenizer()), PREFIX, tails)
    nodes = len(inner(tails))
    assert nodes == 2550 and sum(plan.rows) <= len(PREFIX) + nodes + len(plan.rows), "a parent moves with every pass"
    assert plan.rows[0] == tree.BATCH and len(plan.rows) == 5


def test_deep_trees_need_no_recursion():
    plan = Counting(1 << 16)
    assert len(evaluate(Session(plan, FakeTokenizer()), PREFIX, [[7] * 30_000, [7] * 20_000 + [8]])[0]) == 30_000
    assert sum(plan.rows) == len(PREFIX) + 29_999


def test_only_what_steady_batches_left_is_reused():
    """On a backend whose other batches round differently."""
    s = session()
    s.plan.steady = False
    s.sync([*PREFIX, 9])
    assert s.plan.steadies == [False]
    evaluate(s, PREFIX, [[3, 4]])
    assert s.plan.calls[-1] == (len(PREFIX) + 1, 2) and s.plan.steadies[-1]
    evaluate(s, [*PREFIX, 3], [[3, 4]])
    assert s.plan.calls[-1][0] == 2, "the prefix is reused, the token behind it comes in the same batch"
    s.sync([*PREFIX, 3, 4])
    assert s.plan.calls[-1] == (1, 1), "a plain timeline takes what there is"
    evaluate(s, [*PREFIX, 3, 4, 5], [[3]])
    assert s.plan.calls[-1][0] == 2, "the token that was appended plainly is evaluated again"
    s.accept(6)
    s.rewind(2)
    s.sync([*PREFIX[:2], 9])
    evaluate(s, [*PREFIX[:2], 9, 3], [[3]])
    assert s.plan.calls[-1][0] == 2
