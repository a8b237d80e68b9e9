"""Layers with a state over a plan without weights: its state is the text that led to it, so any wrong place changes every logit."""

from hashlib import blake2b
from math import log2

import pytest
from fakes import FakePlan, session
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex import session as sessions
from reflex import snapshots, tree
from reflex.errors import InvalidInputError, StateError
from reflex.program.records import PLACES
from reflex.sample import Sampling
from reflex.session import Batch
from reflex.tree import Tree, evaluate

PREFIX = [5, 6, 7, 8]


class RecurrentPlan(FakePlan):
    """What a row sees is the text of its strand; `used`: the places written so far."""

    places = PLACES

    def __init__(self, *args):
        super().__init__(*args)
        self.states, self.used = {}, set()
        self.rows = 0

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, runs=(), steady=True, strands=()):
        covered = [row for first, count, _, _ in strands for row in range(first, first + count)]
        assert sorted(covered) == list(range(len(ids)))
        self.rows += len(ids)
        texts = {}
        for first, count, source, destination in strands:
            text = () if source < 0 else self.states[source]
            for row in range(first, first + count):
                texts[row] = text = (*text, ids[row])
                assert len(text) == positions[row] + 1
            if destination >= 0:
                self.states[destination] = text
                self.used.add(destination)
        super().evaluate(ids, first_slot, positions, shared, branch, outputs, runs, steady)
        for number, row in enumerate(outputs):
            seen = tuple(token for _, token in self._visible(first_slot + row, shared[row], runs[row] if runs else (), branch[row]))
            assert seen == texts[row], "keys and values of one text, the state of another"
            digest = blake2b(repr(texts[row]).encode(), digest_size=1).digest()[0]
            self._rows[number][digest % self.vocabulary] += 1.0

    def _visible(self, slot, shared, runs, branch):
        return [entry for first, end in ((0, shared), *runs, (branch, slot + 1)) for entry in self._slots[first:end]]


class FollowingPlan(RecurrentPlan):
    """Makes tokens by itself, up to AHEAD of them before they are asked for; their states go round a ring of places."""

    AHEAD = 3
    PLACES = AHEAD + 1

    def follow(self, token, slot, sampling, draws, recent, ends, most, states):
        start, ring = states(self.PLACES)
        assert len({start, *ring}) == self.PLACES + 1
        return self._make(token, slot, most, start, ring)

    def _make(self, token, slot, most, start, ring):
        ready = []
        for taken in range(most):
            while len(ready) < min(taken + self.AHEAD, most):
                place = ring[len(ready) % len(ring)]
                self.evaluate([token], slot, [slot], [0], [0], [0], strands=[(0, 1, start, place)])
                start, slot, token = place, slot + 1, self.argmax(0)
                ready.append(token)
            yield ready[taken], 0.0


def recurrent(context=64):
    return session(context, plan=FollowingPlan)


def logits_after(ids):
    fresh = recurrent(400)
    fresh.sync(ids)
    return fresh.plan.logits(0).tolist()


def alone(prefix, tail):
    s, values = recurrent(400), []
    for count in range(len(tail)):
        s.sync([*prefix, *tail[:count]])
        values += s.plan.logprobs(0, [tail[count]])
    return values


tails_of = st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=7), min_size=1, max_size=12)


@settings(max_examples=50)
@given(tails_of, st.integers(0, 6), st.randoms(use_true_random=False))
def test_packed_equals_one_at_a_time(tails, cached, random):
    s = recurrent(400)
    if cached:
        s.sync([*PREFIX, 9, 10][:cached])
    found = evaluate(s, PREFIX, tails)
    assert len(s.plan.calls) <= 2, "one pass"
    assert found == [alone(PREFIX, tail) for tail in tails]
    random.shuffle(tails)
    assert evaluate(s, PREFIX, tails) == [alone(PREFIX, tail) for tail in tails]


@settings(max_examples=70)
@given(tails_of, st.integers(1, 9), st.integers(1, 9), st.integers(0, 12))
def test_several_passes_find_the_same_bits(tails, batch, outputs, spare):
    want = evaluate(recurrent(400), PREFIX, tails)
    s = recurrent(len(PREFIX) + max(map(len, tails)) + spare)
    s.plan.most_outputs = outputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "BATCH", batch)
        assert evaluate(s, PREFIX, tails) == want
        assert evaluate(s, PREFIX, tails) == want
    rows = sum(1 for children in Tree(tails).children if children)
    assert len(s.plan.used) <= 2 + snapshots.KEPT + log2(rows + 1) + 2


@pytest.mark.parametrize("batch", [7, 512])
def test_a_comb_keeps_few_states(batch, monkeypatch):
    """Every token of a long candidate is where another one parts: with the smaller child first its state need not wait."""
    monkeypatch.setattr(tree, "BATCH", batch)
    spine = [3 + n % 4 for n in range(90)]
    tails = [spine, *([*spine[:n], 20, 21, 22] for n in range(1, 90))]
    s = recurrent(4096)
    found = evaluate(s, PREFIX, tails)
    for index in (0, 1, 40, 89):
        assert found[index] == alone(PREFIX, tails[index])
    assert len(s.plan.used) <= 2 + snapshots.KEPT + 3


def test_a_tree_that_branches_everywhere_keeps_a_state_for_each_level():
    tails = [[3 + (n >> bit & 1) for bit in range(9)] for n in range(512)]
    s = recurrent(4096)
    found = evaluate(s, PREFIX, tails)
    for index in (0, 5, 300, 511):
        assert found[index] == alone(PREFIX, tails[index])
    assert len(s.plan.used) <= 2 + 9 + 1


def test_more_branches_than_places_are_refused(monkeypatch):
    monkeypatch.setattr(snapshots, "PLACES", 4)
    tails = [[3 + (n >> bit & 1) for bit in range(7)] for n in range(128)]
    s = recurrent(4096)
    with pytest.raises(InvalidInputError, match="branch too often"):
        evaluate(s, PREFIX, tails)
    assert evaluate(s, PREFIX, tails[:2]) == [alone(PREFIX, tail) for tail in tails[:2]], "nothing is left of it"


def test_the_same_prompt_again_computes_its_last_token_only():
    s = recurrent(400)
    prompt = list(range(10, 90))
    evaluate(s, prompt, [[3, 4]])
    s.plan.rows = 0
    evaluate(s, prompt, [[3, 5], [6, 7]])
    assert s.plan.rows == 1 + 2
    for token in (20, 21, 22):  # a continuation moves the state of the end, not that before the last token
        s.append(token)
    s.plan.rows = 0
    assert s.sync(prompt) == len(prompt) - 1
    assert s.plan.rows == 1


def test_where_texts_part_the_state_stays():
    """The second text is computed from the beginning, the third from where the second parted."""
    s = recurrent(400)
    common, ends = list(range(10, 60)), ([3, 4, 5], [6, 7], [8, 9, 3])
    starts = [s.sync([*common, *end]) for end in ends]
    assert starts == [0, 0, len(common)]
    assert s.plan.logits(0).tolist() == logits_after([*common, *ends[-1]])


def test_generation_moves_one_state():
    s = recurrent(400)
    s.sync(list(range(10, 50)))
    s.plan.used.clear()
    for token in range(60, 90):
        s.append(token)
    assert len(s.plan.used) == 1 and s.plan.calls[-1] == (1, 1)
    assert s.plan.logits(0).tolist() == logits_after([*range(10, 50), *range(60, 90)])


def followed(s, token, count):
    """The token behind `token` and `count` others that the backend makes; the timeline is as long as that."""
    run = s.follow(token, Sampling(), 1, (), count + 5)
    for _ in range(count):
        following, _ = next(run)
        s.accept(token)
        assert logits_after(s.ids).index(max(logits_after(s.ids))) == following
        token = following
    return token


def test_a_run_that_is_left_goes_on_where_it_was_left():
    """Though the backend was ahead: nothing is computed twice, and what was there before the run is there."""
    s = recurrent(400)
    s.sync(PREFIX)
    token = followed(s, 9, 11)
    s.plan.rows = 0
    s.append(token)
    assert s.plan.rows == 1 and s.plan.logits(0).tolist() == logits_after(s.ids)
    s.plan.rows = 0
    assert s.sync(PREFIX) == len(PREFIX) - 1 and s.plan.rows == 1
    for _ in range(9):
        followed(s, 7, 3)
    assert len(s.plan.used) <= 2 + snapshots.KEPT + 2 * s.plan.PLACES


moves = st.lists(st.tuples(st.sampled_from("sartf"), st.lists(st.integers(3, 5), min_size=1, max_size=6)), min_size=1, max_size=14)


@settings(max_examples=70)
@given(moves, st.sampled_from([2, 5, 512]))
def test_any_use_of_two_timelines_gives_what_a_fresh_one_gives(steps, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "BATCH", batch)
        patch.setattr(tree, "BATCH", batch)
        one = recurrent(400)
        one.sync(PREFIX)
        other = one.fork()
        for number, (move, ids) in enumerate(steps):
            s = (one, other)[number % 2]
            if move == "s":
                s.sync([*PREFIX[:2], *ids])
            elif move == "a":
                for token in ids:
                    s.append(token)
            elif move == "r":
                s.rewind(max(1, len(s.ids) - len(ids)))
                s.append(ids[0])
            elif move == "f":
                s.append(followed(s, ids[0], len(ids)))
            else:
                assert evaluate(s, s.ids, [ids, ids[::-1]]) == [alone(s.ids, ids), alone(s.ids, ids[::-1])]
                continue
            assert s.plan.logits(0).tolist() == logits_after(s.ids)


def test_after_an_interrupt_the_state_is_computed_again():
    s = recurrent(400)
    s.sync(PREFIX)
    s.append(9)
    s.plan.interrupt_at = len(s.plan.calls) + 1
    with pytest.raises(KeyboardInterrupt):
        s.append(10)
    s.append(10)
    assert s.plan.logits(0).tolist() == logits_after([*PREFIX, 9, 10])


def test_a_batch_that_begins_where_no_state_is_is_refused():
    s = recurrent(400)
    s.sync(list(range(10, 30)))
    batch = Batch(5)
    batch.add_plain([3])
    with pytest.raises(StateError, match="5 tokens"):
        s.evaluate(batch)


def test_forgetting_leaves_nothing():
    s = recurrent(400)
    s.sync(PREFIX)
    s.forget()
    assert s.sync(PREFIX) == 0
