"""Choices of experts that are nearly ties, where rounding decides: how near they are, and what follows if one is turned over.

A choice is turned over by the smallest number that, added to a router's logit of an expert that is not chosen, has it chosen. That
number, in standard deviations of the layer's router logits, is the gap. Used by tests and by bench/families_device.py.
"""

from typing import NamedTuple

import numpy as np

from reflex import ops
from reflex.backends.reference import Plan

GOAL = 0.01  # standard deviations: of logits from the right ones, and of a gap that rounding may turn over
LAST = 1.0  # standard deviations that are tried for a gap
MOST, TRIED = 3, 16  # choices turned over together, and ties tried for each of them, at most


class Tie(NamedTuple):
    gap: float  # standard deviations
    step: int  # of the program
    row: int  # of its buffer
    expert: int  # that is not chosen
    more: float  # what has it chosen


class Turning(Plan):
    """A reference plan that notes gaps below `limit` of every choice, each layer's smallest in any case (0: none at all), and turns
    some over: `turned`."""

    def __init__(self, file, program, context, limit=GOAL, turned=()):
        super().__init__(file, program, context)
        self.limit, self.turned, self.ties = limit, turned, []

    def run(self, first, last):
        for number in range(first, last):
            step = self.program.steps[number]
            if step.op == "route":
                logits = self.buffers[step.ins[0]]
                self.ties += self._near(step, number, logits) if self.limit else ()
                for tie in self.turned:
                    if tie.step == number:
                        logits[tie.row, tie.expert] += np.float32(tie.more)
            super().run(number, number + 1)

    def _near(self, step, number, logits):
        """Ties of a step: all below the limit, or the closest."""
        experts = logits.shape[1]
        bias, size = self.weight(step.weights[0]), float(logits.std())
        pairs = np.array([(r, e) for r, mine in enumerate(self._chosen(step, logits, bias)) for e in range(experts) if not mine[e]])
        if not len(pairs):
            return
        high = np.full(len(pairs), self.limit * size)
        while high[0] < LAST * size and not (inside := self._enters(step, logits, bias, pairs, high)).any():
            high *= 2
        pairs, high = pairs[inside], high[inside]
        low = np.zeros(len(pairs))
        for _ in range(24):
            middle = (low + high) / 2
            inside = self._enters(step, logits, bias, pairs, middle)
            low, high = np.where(inside, low, middle), np.where(inside, middle, high)
        for (row, expert), more in zip(pairs.tolist(), high.tolist(), strict=True):
            yield Tie(more / size, number, row, expert, more)

    def _enters(self, step, logits, bias, pairs, more):
        raised = logits[pairs[:, 0]]  # in float32, as the choice itself: what enters here does there
        raised[range(len(pairs)), pairs[:, 1]] += more.astype(np.float32)
        return self._chosen(step, raised, bias)[range(len(pairs)), pairs[:, 1]]

    def _chosen(self, step, logits, bias):
        """bool [rows, experts]"""
        found = ops.find("route").reference(logits, bias, **step.args)
        chosen = np.zeros(logits.shape, bool)
        np.put_along_axis(chosen, found[:, step.args["used"] :].astype(int), True, 1)
        return chosen


def last_logits(plan, ids):
    """float32 [vocabulary] behind plain text."""
    count = len(ids)
    plan.evaluate(ids, 0, list(range(count)), [0] * count, [0] * count, [count - 1], strands=((0, count, -1, 0),))
    return np.array(plan.logits(0))


def off(found, wanted):
    """Largest difference in standard deviations; infinite where one is no number."""
    value = float(np.abs(found - wanted).max() / wanted.std())
    return value if value == value else float("inf")


def smallest(file, program, context, ids):
    """The closest of all choices of experts in a text, in standard deviations; None without experts."""
    plan = Turning(file, program, context)
    last_logits(plan, ids)
    return min(plan.ties).gap if plan.ties else None


def explain(file, program, context, ids, found, goal=GOAL):
    """(distance, gaps): how near the reference comes to the logits `found` where near ties are turned over, as few as do, the one
    that brings it nearest first; and their gaps."""
    turned = ()
    while True:
        plan = Turning(file, program, context, goal, turned)
        distance = off(found, last_logits(plan, ids))
        known = {(tie.step, tie.row) for tie in turned}
        near = [tie for tie in sorted(plan.ties) if tie.gap < goal and (tie.step, tie.row) not in known][:TRIED]
        if distance < goal or len(turned) == MOST or not near:
            break
        tried = [(off(found, last_logits(Turning(file, program, context, 0, (*turned, tie)), ids)), tie) for tie in near]
        best, tie = min(tried)
        if best >= distance:
            break
        turned = (*turned, tie)
    return distance, [tie.gap for tie in turned]
