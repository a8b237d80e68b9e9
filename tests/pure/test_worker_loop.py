"""The order of requests over a model without weights: what is computed again, and tokens that a backend makes by itself."""

import json
import os

import fakes
import pytest

from reflex.worker.loop import Worker


class Quiet:
    """Signals of which none comes."""

    number = 0

    def __init__(self):
        self.wake, self.end = os.pipe()


class File:
    """A model file that nobody writes to."""

    def rewritten(self):
        return []


@pytest.fixture
def spoken():
    """A function: (answers, the plan) of lines said to a worker over a plan."""
    ends = []

    def speak(*said, plan=fakes.FakePlan, steady=True, hook=None):
        session = fakes.session(plan=plan)
        session.plan.steady = steady
        signals = Quiet()
        (source, feed), (drain, sink) = os.pipe(), os.pipe()
        ends.extend([signals.wake, signals.end, source, drain, sink])
        os.write(feed, b"".join([json.dumps(line).encode() + b"\n" for line in said]))
        if hook:
            hook(session, feed)
        else:
            os.close(feed)
        worker = Worker(File(), session.tokenizer, session, signals, 5.0)
        worker.serve(source, sink)
        return [json.loads(line) for line in os.read(drain, 1 << 16).splitlines()], session.plan

    yield speak
    for end in ends:
        os.close(end)


ASKED = {"command": "generate", "prompt": "the aa b is", "max_tokens": 3}
SCORED = {"command": "system1", "prompt": "the aa b is", "candidates": [" Paris", " London"]}


def rows(plan):
    return [count for count, _ in plan.calls]


@pytest.mark.parametrize("steady", [True, False])
def test_a_prompt_is_computed_again_where_that_could_change_a_bit(spoken, steady):
    answers, plan = spoken(ASKED, ASKED, steady=steady)
    alone, once = spoken(ASKED, steady=steady)
    first, *steps = rows(once)
    assert first > 1 and rows(plan) == [first, *steps, 1 if steady else first, *steps]
    assert answers[0]["token_ids"] == answers[1]["token_ids"] == alone[0]["token_ids"]


def test_scores_use_what_steady_batches_left_and_nothing_else(spoken):
    _, plan = spoken(SCORED, SCORED, steady=False)
    first, second = rows(plan)
    assert second < first and plan.steadies == [True, True]
    _, plan = spoken(ASKED, SCORED, steady=False)
    assert rows(plan)[-1] == first, "nothing of a generation's cache"


@pytest.mark.parametrize("index", [1, 2, 5])
def test_cancel_stops_a_run_that_the_backend_makes_by_itself(spoken, index):
    """Tokens come from the plan without a batch of ours: the line is looked for between them."""

    def hook(session, feed):
        accept, taken = session.plan.follow, []

        def follow(*words):
            for token in accept(*words):
                taken.append(token)
                if len(taken) == index:
                    os.write(feed, b'{"command": "cancel"}\n')
                    os.close(feed)
                yield token

        session.plan.follow = follow

    (result, cancel), _ = spoken({**ASKED, "max_tokens": 30}, plan=fakes.FollowingPlan, hook=hook)
    assert result["finish_reason"] == "cancelled" and result["completion_tokens"] == index + 1
    assert cancel["cancelled"] is True
