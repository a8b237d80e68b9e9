"""Which values of a program are in a buffer between two launches of the cuda backend, where launches do several steps at once.

Needs no device. The norm that the output matrix reads counts, since parts.py writes it down. Called by parts.py and by the lab.
"""

from itertools import pairwise

from .fusion import Attention, Experts, Linear, NormAdd, arranged, fused

NORM = -1


def written(record):
    """Buffers that hold something of their own once the launches of a record have run."""
    if isinstance(record, Linear):
        return [record.out] if record.out else [step.out for step in record.steps]
    if isinstance(record, NormAdd):
        return [record.add.out]
    if hasattr(record, "buffers"):
        return record.buffers()[1]
    return [record.out if isinstance(record, Experts) else record.step.out]


def final_norm(program):
    """The norm that only the products of the head read, which do it themselves; None where there is none such."""
    records = segment(program.steps[program.layers[-1] :])
    return next((record.norm for record, _ in records if isinstance(record, Linear)), None)


def segment(steps):
    """[(record, the steps that it does)] of a segment of a program, all rows of which are wanted."""
    steps = arranged(steps, False)
    found, known, taken = [], set(), set()
    for at, record in fused(steps, taken):
        skipped = {i for i in range(at) if i not in known} if isinstance(record, Attention) else set()  # norms of heads, rotations
        own = (taken | {at} | skipped) - known
        known |= own
        found.append((record, [steps[i] for i in sorted(own)]))
    return found


def segments(program):
    """(first, last) of the layers of a program, of what comes before and of the head."""
    bounds = [0, *program.layers, len(program.steps)]
    return list(pairwise(bounds))


class Moment:
    """A place between launches: behind record number `record` of the segment that begins at step `first` (record NORM: before the
    first one of the head, where its norm is written down). `buffers` hold what steps before it left there."""

    __slots__ = ("buffers", "first", "record")

    def __init__(self, first, record, buffers):
        self.first = first
        self.record = record
        self.buffers = buffers


def moments(program):
    """{number of steps: the Moment when these, and no later ones, have run}."""
    number, found, done = {id(step): n for n, step in enumerate(program.steps)}, {}, set()
    apart = {n for n, step in enumerate(program.steps) if step.op == "select"}  # does nothing where all rows are wanted
    stream = program.steps[0].out  # has a place of its own (lifetimes.py), since layers read it before they write it
    for first, last in segments(program):
        for k, (record, steps) in enumerate(segment(program.steps[first:last])):
            done |= {number[id(step)] for step in steps}
            at = max(done) + 1
            while len(done | {n for n in apart if n < at}) == at:
                left = written(record)
                found[at] = Moment(first, k, left if stream in left or at != last or at > program.layers[-1] else [*left, stream])
                if at not in apart:
                    break
                at += 1
    norm = final_norm(program)
    if norm is not None:
        found[number[id(norm)] + 1] = Moment(program.layers[-1], NORM, [norm.out])
    return found
