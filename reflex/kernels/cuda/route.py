"""route: the experts of a row and their weights (ops/route.py), from the router's logits; a warp per row.

logits: float32[rows, experts]; routes: float32[rows, 2 used]: weights, then indices. experts: up to 512, used: up to 32;
gating: 0 softmax, 1 sigmoid, 2 softmax of chosen, 3 sigmoid of chosen; groups: 0 or 1 for none, else up to 32.
Grid: ceil(rows / 4).

expert_dot.py chooses by itself where it can.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .exponential import exponential
from .export import device, kernel
from .reductions import warp_max, warp_sum

THREADS = 128
WARPS = THREADS // 32
MOST = 512  # experts
NARROW = 128  # experts, up to which a lane holds four
SOFTMAX, SIGMOID, OF_CHOSEN = 0, 1, 2  # 3: sigmoid of chosen
TAKEN, MASKED, LEAST = 0, 1, 2  # keys of experts that are chosen already or stand in no chosen group; the least of others
LEAST_SUM = 2.0**-14
NO_EXPERT = 0x7FFFFFFF


@device
def logit_of(logits, at):
    """A logit, or NaN where it is infinite: that is chosen before all others and makes a weight, and then the model's logits, NaN,
    which is an error. As infinity it could be passed over, and the answer would be made of what is left."""
    value = ptx.ldf(logits, at)
    return float32(value + float32(value - value))


@device
def key_of(value):
    """A number that orders as the float does, NaN of either sign before all: with it a row has its experts in any case."""
    bits = ptx.f2bits(value)
    key = uint32(bits | uint32(0x80000000))
    if bits >> uint32(31) and value == value:
        key = uint32(bits ^ uint32(0xFFFFFFFF))
    return uint32(max(key, uint32(LEAST)))


@device
def value_of(key):
    """The float of a key."""
    bits = uint32(key ^ uint32(0x80000000))
    if key < uint32(0x80000000):
        bits = uint32(key ^ uint32(0xFFFFFFFF))
    return ptx.bits2f(bits)


@device
def sigmoid(x):
    return ptx.rcp(float32(float32(1) + exponential(float32(-x))))


def masker(held):
    """Device function: keys of the experts outside the `kept` runs whose two best have the largest sums become MASKED."""

    @device
    def mask(key, experts, groups, kept, lane):
        size = ptx.quotient(experts, groups)
        mine = float32(0)  # lane g: the sum of run g
        for g in range(groups):
            best, second = uint32(TAKEN), uint32(TAKEN)
            for k in range(held):
                e = int32(lane + 32 * k)
                if e >= g * size and e < (g + 1) * size:
                    second = max(second, min(best, key[k]))
                    best = max(best, key[k])
            top = ptx.redux_max(best)
            owner = ptx.redux_min(uint32(lane if best == top else 32))
            if lane == int32(owner):
                best = second
            again = ptx.redux_max(best)
            total = value_of(top)
            if size > 1:
                total = float32(total + value_of(again))
            if lane == g:
                mine = total
        rank = int32(0)
        for g in range(groups):
            other = ptx.shfl_idx(mine, int32(g))
            if other > mine or (other == mine and g < lane):
                rank = int32(rank + 1)
        for k in range(held):
            e = int32(lane + 32 * k)
            place = ptx.shfl_idx_i(rank, int32(min(ptx.quotient(e, size), int32(groups - 1))))
            if place >= kept and key[k] != uint32(TAKEN):
                key[k] = uint32(MASKED)

    return mask


def chooser(held):
    """Device function for one warp and up to 32 * held experts: (expert of rank `lane`, its logit, largest logit, sum of the
    exponentials of all, or 0 where nobody needs it). at: where the row's logits begin."""
    mask = masker(held)

    @device
    def choose(logits, at, bias, biased, experts, used, gating, renormalize, groups, kept, lane):
        value, key = cuda.local.array(held, float32), cuda.local.array(held, uint32)
        for k in range(held):
            value[k] = logit_of(logits, int32(at + min(int32(lane + 32 * k), int32(experts - 1))))
        plain = int32(biased == 0 and groups < 2)  # the order of logits is that of what is made of them
        whole = int32(gating == SOFTMAX and (plain == 0 or renormalize == 0))  # is the sum over all experts needed?
        top, total = float32(0), float32(0)
        if whole:
            top = value[0]
            for k in range(1, held):
                top = max(top, value[k])
            top = warp_max(top)
            total = float32(0)
            for k in range(held):
                if lane + 32 * k < experts:
                    total = float32(total + exponential(float32(value[k] - top)))
            total = warp_sum(total)
        for k in range(held):
            p = value[k]
            if plain == 0:
                if gating == SOFTMAX:
                    p = float32(exponential(float32(p - top)) / total)
                if gating == SIGMOID:
                    p = sigmoid(p)
                if biased and lane + 32 * k < experts:
                    p = float32(p + ptx.ldgf(bias, int32(lane + 32 * k)))
            key[k] = uint32(TAKEN)
            if lane + 32 * k < experts:
                key[k] = key_of(p)
        if groups > 1:
            mask(key, experts, groups, kept, lane)
        mine, chosen = int32(0), uint32(TAKEN)
        for j in range(used):
            best, place = key[0], int32(lane)
            for k in range(1, held):
                if key[k] > best:
                    best, place = key[k], int32(lane + 32 * k)
            most = ptx.redux_max(best)
            if best != most:
                place = int32(NO_EXPERT)
            expert = int32(ptx.redux_min(uint32(place)))
            for k in range(held):
                if expert == lane + 32 * k:
                    key[k] = uint32(TAKEN)
            if lane == j:
                mine, chosen = expert, most
        mine = int32(min(mine, int32(experts - 1)))  # an address in any case
        x = value_of(chosen)
        if plain == 0:
            x = logit_of(logits, int32(at + mine))
        return mine, x, top, total

    return choose


@device
def weigh(x, top, total, used, gating, renormalize, scale, lane):
    """The weight of a lane's expert, from what the chooser gave; 0 of lanes behind the last."""
    weight = x
    if gating & SIGMOID:  # of chosen too
        weight = sigmoid(x)
    else:
        if total == 0:
            top = x
            if lane >= used:
                top = float32(-3.0e38)
            top = warp_max(top)
        weight = exponential(float32(x - top))
        if total != 0:
            weight = float32(weight / total)
    if lane >= used:
        weight = float32(0)
    if gating == OF_CHOSEN or renormalize:
        weight = float32(weight / max(warp_sum(weight), float32(LEAST_SUM)))
    return float32(weight * scale)


few, many = chooser(NARROW // 32), chooser(MOST // 32)


@kernel("FFiiiiifiiiF", threads=THREADS)
def route(logits, bias, biased, experts, used, gating, renormalize, scale, groups, kept, rows, routes):
    ptx.pdl_launch()
    ptx.pdl_wait()
    lane, row = int32(cuda.threadIdx.x & 31), int32(cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5))
    if row < rows:
        at = int32(row * experts)
        if experts <= NARROW:
            expert, x, top, total = few(logits, at, bias, biased, experts, used, gating, renormalize, groups, kept, lane)
        else:
            expert, x, top, total = many(logits, at, bias, biased, experts, used, gating, renormalize, groups, kept, lane)
        weight = weigh(x, top, total, used, gating, renormalize, scale, lane)
        if lane < used:
            at = int32(2 * row * used + lane)
            routes[at] = weight
            routes[int32(at + used)] = float32(expert)
