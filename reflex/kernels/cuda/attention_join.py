"""How sums of weighted values become results: divided by the sum of the weights and a head's sink, over all splits of a row."""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .attention_cache import over
from .export import device

SINKS = 128  # flag: heads have sinks
LOG2E = 1.4426950408889634
HIDDEN = -1e30  # score of a slot that a row does not see


@device
def weight_of(score, top):
    """exp2(score - top). In instructions of its own, as the next: what surrounds it must not change a bit."""
    return ptx.ex2(ptx.fmaf(top, float32(-1), score))


@device
def sum_with(total, a, b):
    return ptx.fmaf(ptx.fmaf(a, float32(1), b), float32(1), total)


@device
def value_of(acc, odd, at):
    """One of the sums that a lane has, which are in four places."""
    x = ptx.fmaf(acc[at], float32(1), odd[at])
    return ptx.fmaf(x, float32(1), ptx.fmaf(acc[at + 2], float32(1), odd[at + 2]))


def make_leave(columns):
    @device
    def leave(acc, odd, target, to, vd, factor, warp, lane):
        """A lane's sums times `factor` to the head at target[to:]."""
        for i in range(columns):
            d = int32(8 * (warp + 8 * i) + 2 * (lane & 3))
            if d < vd:
                target[to + d] = value_of(acc, odd, 4 * i) * factor
            if d + 1 < vd:
                target[to + d + 1] = value_of(acc, odd, 4 * i + 1) * factor

    return leave


@device
def is_last(partials, at, top, total, counters, block, active, last, tid):
    """Publishes a split's scale and sum after its values; whether every other split has done so."""
    if tid < 32 and tid & 3 == 0:
        partials[at + (tid >> 2)] = top
        partials[at + 8 + (tid >> 2)] = total
    ptx.fence_gpu()
    cuda.syncthreads()
    if tid == 0:
        last[0] = int32(ptx.atom_acqrel_inc(counters, block, uint32(active - 1)))
    cuda.syncthreads()
    return last[0] == active - 1


@device
def sink_of(sinks, head, flags):
    """The score of a head's sink as an exponent of two, or one that adds nothing."""
    score = float32(HIDDEN)
    if flags & SINKS != 0:
        score = float32(ptx.ldgf(sinks, head) * float32(LOG2E))
    return score


@device
def share_beside(top, total, sink):
    """What sums of weights exp2(score - top) are multiplied by, `total` being that of the weights themselves."""
    peak = max(top, sink)
    factor = ptx.ex2(top - peak)
    return float32(factor * ptx.rcp(float32(total * factor + ptx.ex2(sink - peak))))


@device
def combine(sh, partials, out, sinks, place, record, active, count, dim, to, head, flags, tid):
    """The splits' sums, in their order, to out."""
    i = tid
    while i < 16 * active:
        ptx.sts32(sh, i, ptx.ldcg32(partials, int32(place + (i >> 4) * record + 8 * dim + (i & 15))))
        i = int32(i + 256)
    cuda.syncthreads()
    x = cuda.local.array(8, float32)
    i = tid
    while i < count * dim:
        g = int32(i // dim)
        top = float32(HIDDEN)
        s = int32(0)
        while s < active:
            top = max(top, ptx.ldsf(sh, int32(16 * s + g)))
            s = int32(s + 1)
        sink = sink_of(sinks, int32(head + g), flags)
        top = max(top, sink)
        total = ptx.ex2(sink - top)
        value = float32(0)
        s = int32(0)
        while s < active:
            for j in range(8):
                x[j] = ptx.bits2f(ptx.ldcg32(partials, int32(place + min(int32(s + j), int32(active - 1)) * record + i)))
            for j in range(8):
                if s + j < active:
                    f = ptx.ex2(ptx.ldsf(sh, int32(16 * (s + j) + g)) - top)
                    total += f * ptx.ldsf(sh, int32(16 * (s + j) + 8 + g))
                    value += f * x[j]
            s = int32(s + 8)
        out[to + i] = value * ptx.rcp(total)
        i = int32(i + 256)


@device
def fade(before, top):
    """What sums so far are joined with those of a part: (the new top, what the former are multiplied by, and the latter)."""
    new = max(before, top)
    return new, weight_of(before, new), weight_of(top, new)


def make_fold(columns):
    @device
    def fold(acc, odd, sums, all_top, all_total, top, total):
        """Joins what leave() leaves of a part with the sums of parts behind it; the part's begin anew. The new top and total."""
        all_top, before, after = fade(all_top, top)
        for i in range(columns):
            for e in range(2):
                sums[2 * i + e] = ptx.fmaf(sums[2 * i + e], before, value_of(acc, odd, 4 * i + e) * after)
        for i in range(4 * columns):
            acc[i], odd[i] = float32(0), float32(0)
        return all_top, ptx.fmaf(all_total, before, total * after)

    @device
    def put(sums, target, to, vd, factor, warp, lane):
        for i in range(columns):
            d = int32(8 * (warp + 8 * i) + 2 * (lane & 3))
            if d < vd:
                target[to + d] = sums[2 * i] * factor
            if d + 1 < vd:
                target[to + d + 1] = sums[2 * i + 1] * factor

    return fold, put


@device
def fold_all(partials, out, sinks, place, record, parts, count, dim, to, head, flags, tid):
    """The parts' sums to out, joined one by one from the last to the first, as one block does that has all of them."""
    tops, totals, x = cuda.local.array(8, float32), cuda.local.array(8, float32), cuda.local.array(8, float32)
    i = tid
    while i < count * dim:
        g = over(i, dim)
        top, total, value = float32(HIDDEN), float32(0), float32(0)
        left = parts
        while left > 0:
            for j in range(8):
                at = int32(place + max(int32(left - 1 - j), int32(0)) * record)
                x[j] = ptx.bits2f(ptx.ldcg32(partials, int32(at + i)))
                tops[j] = ptx.bits2f(ptx.ldcg32(partials, int32(at + 8 * dim + g)))
                totals[j] = ptx.bits2f(ptx.ldcg32(partials, int32(at + 8 * dim + 8 + g)))
            for j in range(8):
                if j < left:
                    top, before, after = fade(top, tops[j])
                    total = ptx.fmaf(total, before, totals[j] * after)
                    value = ptx.fmaf(value, before, x[j] * after)
            left = int32(left - 8)
        out[to + i] = value * share_beside(top, total, sink_of(sinks, int32(head + g), flags))
        i = int32(i + 256)


def make_join(leave, tree):
    @device
    def join(
        sh, acc, odd, partials, counters, out, sinks, to, head, block, split, active, count, vd, top, total, last, flags, tid
    ):  # fmt: skip
        """Leaves a split's sums in `partials`; the last split to come adds them all up."""
        lane = int32(tid & 31)
        g = int32(lane >> 2)
        record = int32(8 * vd + 16)
        place = int32(block * cuda.gridDim.y * record)
        at = int32(place + split * record)
        if g < count:
            leave(acc, odd, partials, int32(at + g * vd), vd, float32(1), int32(tid >> 5), lane)
        if is_last(partials, int32(at + 8 * vd), top, total, counters, block, active, last, tid):
            if tree:
                fold_all(partials, out, sinks, place, record, active, count, vd, to, head, flags, tid)
            else:
                combine(sh, partials, out, sinks, place, record, active, count, vd, to, head, flags, tid)

    return join
