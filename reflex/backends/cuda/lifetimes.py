"""Which activation buffers may lie in the same place: those whose contents are never needed at the same time.

Launches run in the order of the fused records (fusion.py), each after the one before it, so a buffer is in use from the first
to the last record of a segment (a layer, the head) that touches it. What a segment reads before it writes, like the residual
stream, came from another one and keeps its place for itself. Called by Memory (memory.py); knows neither rows nor kernels.
"""

from itertools import pairwise

from .fusion import Experts, Linear, NormAdd, fuse

INPUT = "halves"  # the input of products as half floats, written and read by every product of several rows
ALWAYS = -1  # a set of moments, one bit each: all of them


def touched(record):
    """(buffers that a record reads, buffers that it writes)."""
    if isinstance(record, Linear):
        outs = [record.out] if record.out else [step.out for step in record.steps]
        return [record.source, *(outs if record.mode == "add" else ())], [*outs, INPUT, *spare(record)]
    if isinstance(record, NormAdd):
        both = [record.norm.out, record.add.out]
        return both, both
    if isinstance(record, Experts):
        writes = [*record.inner(), record.out, INPUT, *spare(record)]
        return [record.source, *([record.out] if record.mode == "add" else ())], writes
    if hasattr(record, "buffers"):
        return record.buffers()
    step = record.step
    return step.ins, [step.out, *([INPUT] if step.op == "expert_linear" else ())]


def spare(record):
    """Buffers that a record writes only where kernels cannot do all of it at once. Their places are made when they are
    asked for, apart from others."""
    if isinstance(record, Experts):
        return [record.up.out]
    gated = isinstance(record, Linear) and record.mode == "gated"
    return [step.out for step in record.steps if step.out != record.out] if gated else []


def moments(program):
    """{buffer: set of moments at which it is in use, as bits}. A moment is a record of one of the program's segments."""
    found, spares, start = {}, set(), 0
    bounds = [0, *program.layers, len(program.steps)]
    known = set()
    for first, last in pairwise(bounds):
        steps = program.steps[first:last]
        key = tuple((step.op, step.out, step.ins) for step in steps)
        if key in known:  # layers repeat
            continue
        known.add(key)
        for selecting in (False, True) if any(step.op == "select" for step in steps) else (False,):
            records = fuse(steps, selecting)
            _segment(records, start, found)
            spares.update(name for record in records for name in spare(record))
            start += len(records)
    found.update((name, ALWAYS) for name in spares if name in found)  # of a program where others use it as well
    return found  # no moment follows those of the logits: they stay until the next evaluation


def _segment(records, start, found):
    """Add the moments of one segment, numbered from `start`."""
    spans, inputs = {}, 0
    for at, record in enumerate(records, start):
        reads, writes = touched(record)
        for buffer in reads:
            if buffer not in spans:
                found[buffer] = ALWAYS
            spans.setdefault(buffer, [at, at])[1] = at
        for buffer in writes:
            if buffer == INPUT:
                inputs |= 1 << at
            elif buffer not in spare(record):
                spans.setdefault(buffer, [at, at])[1] = at
    for buffer, (first, last) in spans.items():
        found[buffer] = found.get(buffer, 0) | (2 << last) - (1 << first)
    if inputs:
        found[INPUT] = found.get(INPUT, 0) | inputs


def arrange(sizes, used):
    """({buffer: offset}, bytes of all): the largest first, each as low as those it shares a moment with allow."""
    placed, end = {}, 0
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        at = 0
        for low, other in sorted((placed[other], other) for other in placed if used[other] & used[name]):
            if at + sizes[name] > low:
                at = max(at, low + sizes[other])
        placed[name] = at
        end = max(end, at + sizes[name])
    return placed, end
