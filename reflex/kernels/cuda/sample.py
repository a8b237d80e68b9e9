"""Draws one token from a row of logits: the definition is reflex.sample.choose, the filters and their order those of it.

sample_bins counts tokens and adds weights in bins of falling logit. Every block of `sample` reads off the bins where the cut
of the filters (or, without filters, the draw) must lie; the blocks collect those tokens, and the last one sorts and chooses
among them. Where they are too many to sort (flat logits, many equal ones), that block narrows the key range instead,
reading the row again and again. settings: float64[6] = temperature, top_k, top_p, min_p, random number in [0, 1), repeat penalty.
"""

from numba import cuda
from numba.types import float32, float64, int32, int64, uint32

from . import ptx
from .candidates import BINS, HALF_BITS, bin_of, key_of, logit_of, scale_of, token_of, weight_halves, weight_of
from .exponential import exponential, logarithm
from .export import device, kernel
from .quads import load4
from .reductions import block_scan

THREADS = BINS  # a thread per bin
CHUNK = 4 * THREADS  # columns of one block
MOST = 2 * THREADS  # tokens that are sorted
WORDS = 3 * BINS
TEMPERATURE, TOP_K, TOP_P, MIN_P, RANDOM = 0, 1, 2, 3, 4
MASSES, LIST = BINS, 2 * BINS  # in the scratch: counts, masses, then the collected keys
SCRATCH_WORDS = 2 * BINS + MOST
COUNT, MASS, DRAW = 0, 1, 2  # what a narrowing adds up
LAST_KEY = 0x7FFFFFFFFFFFFFFF
THIRD, THIRD_MASK = 13, 0x1FFF  # bits of a weight per shared counter: room for 2^19 tokens


@device
def limit_of(settings, columns):
    """top_k, or all columns where it is off."""
    k = int32(settings[TOP_K])
    if k <= 0 or k > columns:
        k = columns
    return k


@device
def filtered(settings, columns):
    return limit_of(settings, columns) < columns or settings[TOP_P] < 1.0 or settings[MIN_P] > 0.0


@kernel("FFDLi", threads=THREADS)
def sample_bins(logits, stats, settings, scratch, columns):
    """scratch: int64[4096], zeros before; counts of tokens, then sums of weights, by bin. Grid: ceil(columns / 4096).

    Weights are at the temperature of the draw if no filter is on, else at 1. logits, stats: of one row (see logits_stats)."""
    words = cuda.shared.array(WORDS, uint32)
    ptx.pdl_launch()
    t = uint32(cuda.threadIdx.x)
    words[t], words[uint32(t + BINS)], words[uint32(t + 2 * BINS)] = uint32(0), uint32(0), uint32(0)
    ptx.pdl_wait()
    scale = float32(1)
    if not filtered(settings, columns):
        scale = scale_of(settings[TEMPERATURE])
    top = stats[0]
    at = int32(cuda.blockIdx.x * CHUNK + (cuda.threadIdx.x << 2))
    left = int32(columns - at)
    x = cuda.local.array(4, float32)
    x[0], x[1], x[2], x[3] = load4(logits, at, left, True)
    cuda.syncthreads()
    for k in range(4):
        if k < left:
            below = float32(top - x[k])
            place = bin_of(below)
            high, low = weight_halves(below, scale)
            ptx.atoms_add(words, place, uint32(1))
            if high > 0:
                ptx.atoms_add(words, int32(place + BINS), uint32(high))
            if low > 0:
                ptx.atoms_add(words, int32(place + 2 * BINS), uint32(low))
    cuda.syncthreads()
    count = words[t]
    if count > 0:
        mass = int64((int64(words[uint32(t + BINS)]) << HALF_BITS) + int64(words[uint32(t + 2 * BINS)]))
        ptx.red_add64(scratch, int32(t), int64(count))
        ptx.red_add64(scratch, int32(t + MASSES), mass)


@device
def last_likely_bin(min_p):
    """The last bin that may hold tokens `min_p` times as likely as the first; with a margin for rounding."""
    place = int32(BINS - 1)
    if min_p > 1e-30:
        place = bin_of(float32(float32(1e-3) - float32(1.0001) * logarithm(float32(min_p))))
    return place


@device
def find_range(settings, scratch, columns, cells, sums, found):
    """found[0 .. 3]: first and last bin to collect, how many tokens those hold; sums[0 .. 1]: weights before them and in all."""
    t = int32(cuda.threadIdx.x)
    count, _ = block_scan(int64(scratch[t]), cells)
    own = int64(scratch[int32(t + MASSES)])
    mass, total = block_scan(own, cells)
    limit, top_p, any_filter = int64(limit_of(settings, columns)), settings[TOP_P], filtered(settings, columns)
    if t == 0:
        found[uint32(0)], found[uint32(1)], found[uint32(2)] = int32(0), int32(BINS - 1), int32(0)
        if settings[MIN_P] > 0.0:
            found[uint32(1)] = last_likely_bin(settings[MIN_P])
        sums[uint32(0)], sums[uint32(1)] = int64(0), total
    cuda.syncthreads()
    before = int64(mass - own)
    if not any_filter:
        goal = settings[RANDOM] * float64(total)
        if float64(mass) > goal and float64(before) <= goal:
            found[uint32(0)], found[uint32(1)], sums[uint32(0)] = t, t, before
    else:
        crosses = False
        if limit < columns:
            crosses = count >= limit and int64(count - scratch[t]) < limit
        elif top_p < 1.0:
            goal = top_p * float64(total)
            crosses = float64(mass) >= goal and float64(before) < goal
        if crosses and t < found[uint32(1)]:
            found[uint32(1)] = t
    cuda.syncthreads()
    if t == found[uint32(1)]:
        found[uint32(2)] = int32(scratch[t]) if found[uint32(0)] > 0 else int32(count)
    cuda.syncthreads()


@device
def collect(logits, top, columns, first, last, scratch, counters):
    """Append the keys of this block's tokens in the bins first .. last to the list, in any order."""
    at = int32(cuda.blockIdx.x * CHUNK + (cuda.threadIdx.x << 2))
    left = int32(columns - at)
    x = cuda.local.array(4, float32)
    x[0], x[1], x[2], x[3] = load4(logits, at, left, True)
    for k in range(4):
        if k < left:
            place = bin_of(float32(top - x[k]))
            if first <= place and place <= last:
                slot = int32(ptx.atom_add(counters, 0, uint32(1)))
                if slot < MOST:
                    scratch[int32(slot + LIST)] = key_of(x[k], int32(at + k))


@device
def sort(keys, count):
    """Rising, in place, by a bitonic network over the power of two of shared keys that holds `count`."""
    t = int32(cuda.threadIdx.x)
    full = int32(1)
    while full < count:
        full = int32(full << 1)
    size = int32(2)
    half = int32(1)
    while half < full:
        apart = half
        while apart > 0:
            i = int32(2 * t - (t & (apart - 1)))
            if i < full:
                a, b = keys[uint32(i)], keys[uint32(i + apart)]
                if (a > b) == ((i & size) == 0):
                    keys[uint32(i)], keys[uint32(i + apart)] = b, a
            cuda.syncthreads()
            apart = int32(apart >> 1)
        half = size
        size = int32(size << 1)


@device
def weight_at(keys, place, count, top, scale):
    """Weight of a sorted token, 0 past `count`."""
    weight = int64(0)
    if place < count:
        weight = weight_of(float32(top - logit_of(keys[uint32(place)])), scale)
    return weight


@device
def kept_of(settings, keys, count, top, total, columns, cells):
    """How many of the sorted tokens the filters leave: they are always the first ones. Two tokens per thread."""
    place = int32(cuda.threadIdx.x << 1)
    limit = limit_of(settings, columns)
    kept = min(limit, count)
    if settings[TOP_P] < 1.0:
        a, b = weight_at(keys, place, kept, top, float32(1)), weight_at(keys, int32(place + 1), kept, top, float32(1))
        mass, listed = block_scan(int64(a + b), cells)
        goal = settings[TOP_P] * float64(listed if limit < columns else total)
        short = int64(place < kept and (place == 0 or float64(mass - a - b) < goal))
        short = int64(short + int64(place + 1 < kept and float64(mass - b) < goal))
        _, listed = block_scan(short, cells)
        kept = int32(listed)
    if settings[MIN_P] > 0.0:
        likely = int64(0)
        for k in range(2):
            i = int32(place + k)
            if i < kept and (i == 0 or float64(exponential(float32(logit_of(keys[uint32(i)]) - top))) >= settings[MIN_P]):
                likely = int64(likely + 1)
        _, listed = block_scan(likely, cells)
        kept = int32(listed)
    return kept


@device
def draw_listed(settings, keys, count, top, columns, sums, cells, found):
    """found[3]: the token drawn from the sorted list."""
    t = int32(cuda.threadIdx.x)
    place = int32(t << 1)
    scale = scale_of(settings[TEMPERATURE])
    any_filter = filtered(settings, columns)
    kept = count
    if any_filter:
        kept = kept_of(settings, keys, count, top, sums[uint32(1)], columns, cells)
    a, b = weight_at(keys, place, kept, top, scale), weight_at(keys, int32(place + 1), kept, top, scale)
    mass, total = block_scan(int64(a + b), cells)
    if not any_filter:
        mass, total = int64(mass + sums[uint32(0)]), sums[uint32(1)]
    goal = settings[RANDOM] * float64(total)
    if t == 0 and kept > 0:
        found[uint32(3)] = token_of(keys[uint32(kept - 1)])  # if no running sum exceeds the goal
    cuda.syncthreads()
    if float64(mass) > goal and float64(mass - a - b) <= goal:
        found[uint32(3)] = token_of(keys[uint32(place if float64(mass - b) > goal else int32(place + 1))])
    cuda.syncthreads()


@device
def narrowing_weight(value, top, first, kind, scale, min_p):
    """What a token adds to a narrowing; `first`: whether it is the first in order, which every filter keeps."""
    weight = int64(1)
    below = float32(top - value)
    if kind == MASS:
        weight = weight_of(below, float32(1))
    elif kind == DRAW:
        weight = weight_of(below, scale)
        if not first and min_p > 0.0 and float64(exponential(float32(-below))) < min_p:
            weight = int64(0)
    return weight


@device
def narrow(logits, stats, settings, columns, low, high, kind, words, cells, sums):
    """The key in low .. high at which the sum of what `kind` adds up reaches its goal. Reads the row once per ten bits of key."""
    t, first_key, top = int32(cuda.threadIdx.x), low, stats[0]
    scale, min_p = scale_of(settings[TEMPERATURE]), settings[MIN_P]
    before, goal = int64(0), float64(limit_of(settings, columns))
    started = False
    while low < high:
        shift = int32(0)
        while (int64(high - low) >> shift) >= BINS:
            shift = int32(shift + 1)
        for third in range(3):
            words[uint32(t + third * BINS)] = uint32(0)
        cuda.syncthreads()
        i = t
        while i < columns:
            value = logits[i]
            key = key_of(value, i)
            if low <= key and key <= high:
                weight = narrowing_weight(value, top, key == first_key, kind, scale, min_p)
                place = int32(int64(key - low) >> shift)
                for third in range(3):
                    part = uint32(int32(weight >> (third * THIRD)) & THIRD_MASK)
                    if part > 0:
                        ptx.atoms_add(words, int32(place + third * BINS), part)
            i = int32(i + THREADS)
        cuda.syncthreads()
        own = int64(words[uint32(t)]) + (int64(words[uint32(t + BINS)]) << THIRD)
        own = int64(own + (int64(words[uint32(t + 2 * BINS)]) << (2 * THIRD)))
        mass, total = block_scan(own, cells)
        if not started:
            started = True
            if kind == MASS:
                goal = settings[TOP_P] * float64(total)
            elif kind == DRAW:
                goal = settings[RANDOM] * float64(total)
        upto, until = float64(int64(before + mass)), float64(int64(before + mass - own))
        if t == 0:
            sums[uint32(0)] = int64(-1)
        cuda.syncthreads()
        if (kind == DRAW and upto > goal and until <= goal) or (kind != DRAW and upto >= goal and until < goal):
            sums[uint32(0)], sums[uint32(1)] = int64(t), int64(before + mass - own)
        cuda.syncthreads()
        place = int32(sums[uint32(0)])
        if place < 0:  # rounding put the goal past the last token, or no token weighs anything
            low = high
        else:
            before = sums[uint32(1)]
            low = int64(low + (int64(place) << shift))
            high = min(high, int64(low + (int64(1) << shift) - 1))
        cuda.syncthreads()
    return low


@device
def draw_narrowed(logits, stats, settings, columns, words, cells, sums, found):
    """found[3]: the token drawn by narrowing: to the last token of top-k, to that of top-p, to the drawn one."""
    first = int32(ptx.f2bits(stats[2]))
    if first >= 0:
        low, high = key_of(stats[0], first), int64(LAST_KEY)
        for kind in range(3):
            counted = kind == COUNT and limit_of(settings, columns) < columns
            if kind == DRAW or counted or (kind == MASS and settings[TOP_P] < 1.0):
                high = narrow(logits, stats, settings, columns, low, high, kind, words, cells, sums)
        if cuda.threadIdx.x == 0 and token_of(high) < columns:
            found[uint32(3)] = token_of(high)
        cuda.syncthreads()


@kernel("FFDLUIii", threads=THREADS)
def sample(logits, stats, settings, scratch, counters, chosen, columns, most):
    """chosen[0] = the id drawn, the largest logit's if the temperature is 0. Grid: ceil(columns / 4096), columns up to 2^19.

    Runs after sample_bins and leaves scratch[: 2048] and counters (uint32[2]) at 0 as it found them. At most `most` (2048)
    tokens are sorted; 0 narrows always."""
    keys = cuda.shared.array(MOST, int64)
    words = cuda.shared.array(WORDS, uint32)
    cells = cuda.shared.array(32, int64)
    sums = cuda.shared.array(2, int64)
    found = cuda.shared.array(5, int32)
    ptx.pdl_launch()
    ptx.pdl_wait()
    t, top = int32(cuda.threadIdx.x), stats[0]
    find_range(settings, scratch, columns, cells, sums, found)
    count = found[uint32(2)]
    if count <= most:
        collect(logits, top, columns, found[uint32(0)], found[uint32(1)], scratch, counters)
    cuda.syncthreads()
    if t == 0:
        found[uint32(4)] = int32(ptx.atom_acqrel_inc(counters, 1, uint32(cuda.gridDim.x - 1)))
        found[uint32(3)] = int32(ptx.f2bits(stats[2]))
    cuda.syncthreads()
    if found[uint32(4)] == int32(cuda.gridDim.x - 1):
        scratch[t], scratch[int32(t + MASSES)] = int64(0), int64(0)
        if t == 0:
            counters[0] = uint32(0)
        if settings[TEMPERATURE] > 0.0:
            if count <= most:
                for k in range(2):
                    i = int32(t + k * THREADS)
                    low, high = ptx.ldcg64(scratch, int32(i + LIST))
                    keys[uint32(i)] = int64((int64(high) << 32) | int64(low)) if i < count else int64(LAST_KEY)
                cuda.syncthreads()
                sort(keys, count)
                draw_listed(settings, keys, count, top, columns, sums, cells, found)
            else:
                draw_narrowed(logits, stats, settings, columns, words, cells, sums, found)
        if t == 0:
            chosen[0] = found[uint32(3)]
