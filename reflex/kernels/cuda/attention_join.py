"""How sums of weighted values become results: divided by the sum of the weights and a head's sink, over all splits of a row."""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
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


def make_leave(columns):
    @device
    def leave(acc, odd, target, to, vd, factor, warp, lane):
        """A lane's sums times `factor` to the head at target[to:]."""
        for i in range(columns):
            d = int32(8 * (warp + 8 * i) + 2 * (lane & 3))
            if d < vd:
                target[to + d] = ((acc[4 * i] + odd[4 * i]) + (acc[4 * i + 2] + odd[4 * i + 2])) * factor
            if d + 1 < vd:
                target[to + d + 1] = ((acc[4 * i + 1] + odd[4 * i + 1]) + (acc[4 * i + 3] + odd[4 * i + 3])) * factor

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


def make_join(leave):
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
            combine(sh, partials, out, sinks, place, record, active, count, vd, to, head, flags, tid)

    return join
