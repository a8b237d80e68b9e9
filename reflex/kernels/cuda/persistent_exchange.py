"""Exchanges of the persistent decode kernel: activations travel between blocks through global memory, without fences.

Every value is in a packet with its own flag, stored and loaded whole: the upper 24 bits of a float32 and 8 of the epoch's number.
A buffer is overwritten only when that is safe by causality: nobody can make its next generation before every block has read
this one, because it depends on values that every block made afterwards. A relaxed counter of finished blocks, watched by one
thread of each block, says when reading is worth it: blocks that all poll whole vectors slow each other down.

The reader turns what it read into the vector of persistent_dots.py at once: RMSNorm's 1/rms is a factor of the whole vector,
which the finished products are multiplied by, so nothing waits for the sum of squares.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device
from .persistent_dots import put

THREADS = 256  # of the warps that compute
LARGEST = 16256.0  # 127 * 128: an activation is 128 high + low, with high from -127 and low from -64 to 63
LINE = 32  # words between counters
COUNTERS = 4 * 4 * LINE  # words: of x, y, the hidden vector and the heads
SPLITS = 4  # parts that the positions of a head may be split in


@device
def packet(value, ep):
    """A value, rounded to 16 bits of mantissa, with its flag."""
    bits = ptx.f2bits(value)
    if uint32(bits & 0x7F800000) != uint32(0x7F800000):
        bits = uint32(bits + uint32(128))
    return uint32(uint32(bits & 0xFFFFFF00) | uint32(ep & 255))


@device
def value_of(word):
    return ptx.bits2f(uint32(word & 0xFFFFFF00))


@device
def late(a, b, c, d, flag):
    """Not 0 if one of four packets is of another epoch."""
    return uint32(uint32((a ^ flag) | (b ^ flag) | (c ^ flag) | (d ^ flag)) & 255)


@device
def count_in(counters, at, block):
    """Count a block as finished. Every fourth has the same counter, so that they wait less for each other."""
    ptx.red_relaxed_add(counters, int32(at + (block & 3) * LINE), uint32(1))


@device
def await_count(counters, at, ep, blocks, tid, state):
    """Four threads watch the counters; only a hint, the packets carry their own flags."""
    if tid < 4:
        at = int32(at + tid * LINE)
        wanted = uint32(ep * uint32((blocks + 3 - tid) >> 2))
        polls = int32(0)
        go = int32(1)
        while go > 0:
            seen = ptx.ld_rel32(counters, at)
            polls = int32(polls + 1)
            if int32(uint32(seen - wanted)) >= 0 or polls > state[0]:
                go = int32(0)
    ptx.bar_sync(1, 256)


@device
def give_up(polls, state):
    if polls > state[0]:
        state[0] = int32(1)
        state[1] = int32(1)


def quantizer(slots, squared):
    """Put `slots` times 4 values per thread into the vector as integers; the chains of all slots run interleaved.

    Eight lanes share a scale. `squared`: also sum `squares` over the warp. The sums are those of the rounded values: exact
    ones would be worse, since rounding errors would then meet weights that are not centred."""

    @device
    def quantize(values, squares, sh, vector, room, first, count, tid):
        largest = cuda.local.array(slots, float32)
        total = cuda.local.array(slots, int32)
        wide = cuda.local.array(slots, int32)
        high = cuda.local.array(slots, uint32)
        low = cuda.local.array(slots, uint32)
        for s in range(slots):
            largest[s] = max(max(abs(values[s * 4]), abs(values[s * 4 + 1])), max(abs(values[s * 4 + 2]), abs(values[s * 4 + 3])))
        for k in range(3):
            for s in range(slots):
                largest[s] = max(largest[s], ptx.shfl_xor(largest[s], 1 << k))
            if squared:
                squares += ptx.shfl_xor(squares, 1 << k)
        for s in range(slots):
            scale = float32(0)
            if largest[s] > float32(0):
                scale = float32(float32(LARGEST) * ptx.rcp(largest[s]))
            i0 = ptx.f2i_rn(float32(values[s * 4] * scale))
            i1 = ptx.f2i_rn(float32(values[s * 4 + 1] * scale))
            i2 = ptx.f2i_rn(float32(values[s * 4 + 2] * scale))
            i3 = ptx.f2i_rn(float32(values[s * 4 + 3] * scale))
            total[s] = int32((i0 + i1) + (i2 + i3))
            h0 = int32((i0 + 64) >> 7)
            h1 = int32((i1 + 64) >> 7)
            h2 = int32((i2 + 64) >> 7)
            h3 = int32((i3 + 64) >> 7)
            high[s] = ptx.prmt(
                ptx.prmt(uint32(h0), uint32(h1), uint32(0x0040)), ptx.prmt(uint32(h2), uint32(h3), uint32(0x0040)), uint32(0x5410)
            )
            h0 = int32(i0 - h0 * 128)
            h1 = int32(i1 - h1 * 128)
            h2 = int32(i2 - h2 * 128)
            h3 = int32(i3 - h3 * 128)
            low[s] = ptx.prmt(
                ptx.prmt(uint32(h0), uint32(h1), uint32(0x0040)), ptx.prmt(uint32(h2), uint32(h3), uint32(0x0040)), uint32(0x5410)
            )
        for k in range(2):
            for s in range(slots):
                total[s] = int32(total[s] + ptx.shfl_xor_i(total[s], 1 << k))
            if squared:
                squares += ptx.shfl_xor(squares, 8 << k)
        for s in range(slots):
            wide[s] = int32(total[s] + ptx.shfl_xor_i(total[s], 4))
        for s in range(slots):
            i = int32(first + (s * THREADS + tid) * 4)
            if i < count:
                step = float32(largest[s] * float32(1.0 / LARGEST))
                put(sh, vector, room, i, high[s], low[s], step, total[s], wide[s], tid)
        return squares

    return quantize


def vector_reader(slots):
    """Reader of the residual stream, times the norm's weights."""
    size = slots * 4
    quantize = quantizer(slots, True)

    @device
    def read_vector(exchange, source, counter, norm, count, flag, blocks, sh, vector, room, reduced, tid, state):
        """reduced: every warp's sum of squares."""
        values = cuda.local.array(size, float32)
        weights = cuda.local.array(size, float32)
        squares = float32(0)
        first = int32(0)
        while first < count:
            for s in range(slots):
                i = int32(min(int32(first + (s * THREADS + tid) * 4), int32(count - 4)))
                k = s * 4
                weights[k], weights[k + 1], weights[k + 2], weights[k + 3] = ptx.ldgf4(norm, int32(i * 4))
            for k in range(size):
                values[k] = float32(0)
            if first == 0:
                await_count(exchange, counter, flag, blocks, tid, state)
            polls = int32(0)
            go = int32(1)
            while go > 0:
                bad = uint32(0)
                for s in range(slots):
                    i = int32(first + (s * THREADS + tid) * 4)
                    if i < count:
                        a, b, c, d = ptx.ld_ll4(exchange, int32(source + i))
                        bad = uint32(bad | late(a, b, c, d, flag))
                        values[s * 4] = value_of(a)
                        values[s * 4 + 1] = value_of(b)
                        values[s * 4 + 2] = value_of(c)
                        values[s * 4 + 3] = value_of(d)
                polls = int32(polls + 1)
                if bad == 0 or polls > state[0]:
                    go = int32(0)
            give_up(polls, state)
            part = float32(0)
            for k in range(size):
                part += values[k] * values[k]
                values[k] *= weights[k]
            squares += quantize(values, part, sh, vector, room, first, count, tid)
            first = int32(first + slots * THREADS * 4)
        if tid & 31 == 0:
            reduced[uint32(tid >> 5)] = squares
        ptx.bar_sync(1, 256)

    return read_vector


def hidden_reader(slots):
    """Reader of the feed-forward's hidden vector."""
    size = slots * 4
    quantize = quantizer(slots, False)

    @device
    def read_hidden(exchange, source, counter, count, flag, blocks, sh, vector, room, tid, state):
        packets = cuda.local.array(size, uint32)
        values = cuda.local.array(size, float32)
        first = int32(0)
        while first < count:
            for k in range(size):
                packets[k] = uint32(0)
            if first == 0:
                await_count(exchange, counter, flag, blocks, tid, state)
            polls = int32(0)
            go = int32(1)
            while go > 0:
                bad = uint32(0)
                for s in range(slots):
                    i = int32(first + (s * THREADS + tid) * 4)
                    if i < count:
                        a, b, c, d = ptx.ld_ll4(exchange, int32(source + i))
                        bad = uint32(bad | late(a, b, c, d, flag))
                        packets[s * 4] = a
                        packets[s * 4 + 1] = b
                        packets[s * 4 + 2] = c
                        packets[s * 4 + 3] = d
                polls = int32(polls + 1)
                if bad == 0 or polls > state[0]:
                    go = int32(0)
            give_up(polls, state)
            for k in range(size):
                values[k] = value_of(packets[k])
            quantize(values, float32(0), sh, vector, room, first, count, tid)
            first = int32(first + slots * THREADS * 4)
        ptx.bar_sync(1, 256)

    return read_hidden


def heads_reader(slots):
    """Reader of the attention's output: the parts of each head with their {maximum, sum}, combined here."""
    size, parts = slots * 4, slots * SPLITS * 4
    quantize = quantizer(slots, False)

    @device
    def read_heads(exchange, source, spans, split, count, head_size, flag, sh, vector, room, tid, state):
        """source: packets [split, head, value]; spans: packets [head, split, {maximum, sum}]; split: parts there are."""
        packets = cuda.local.array(parts, uint32)
        values = cuda.local.array(size, float32)
        maximum = cuda.local.array(slots, float32)
        weight = cuda.local.array(slots, float32)
        lane = int32(tid & 31)
        mine = int32(min(int32(lane & (SPLITS - 1)), int32(split - 1)))
        first = int32(0)
        while first < count:
            for k in range(parts):
                packets[k] = uint32(0)
            for s in range(slots):
                maximum[s] = float32(0)
                weight[s] = float32(1)
            polls = int32(0)
            go = int32(1)
            while go > 0:
                bad = uint32(0)
                for s in range(slots):
                    i = int32(first + (s * THREADS + tid) * 4)
                    if i < count:
                        for z in range(SPLITS):
                            if z == 0 or z < split:
                                a, b, c, d = ptx.ld_ll4(exchange, int32(source + z * count + i))
                                bad = uint32(bad | late(a, b, c, d, flag))
                                k = (s * SPLITS + z) * 4
                                packets[k] = a
                                packets[k + 1] = b
                                packets[k + 2] = c
                                packets[k + 3] = d
                        if split > 1:
                            head = int32(uint32(i) // uint32(head_size))
                            e, fe, g, fg = ptx.ld_ll2(exchange, int32(spans + (head * SPLITS + mine) * 4))
                            bad = uint32(bad | (fe ^ flag) | (fg ^ flag))
                            maximum[s] = ptx.bits2f(e)
                            weight[s] = ptx.bits2f(g)
                polls = int32(polls + 1)
                if bad == 0 or polls > state[0]:
                    go = int32(0)
            give_up(polls, state)
            for s in range(slots):
                for e4 in range(4):
                    values[s * 4 + e4] = value_of(packets[s * SPLITS * 4 + e4])
            if split > 1:
                for s in range(slots):
                    top = maximum[s]
                    top = max(top, ptx.shfl_xor(top, 1))
                    top = max(top, ptx.shfl_xor(top, 2))
                    mass = float32(ptx.ex2(float32(maximum[s] - top)) * weight[s])
                    f = ptx.shfl_idx(mass, int32(lane & 28))
                    whole = f
                    for e4 in range(4):
                        values[s * 4 + e4] *= f
                    for z in range(1, SPLITS):
                        f = ptx.shfl_idx(mass, int32((lane & 28) + z))
                        if z < split:
                            whole += f
                            for e4 in range(4):
                                values[s * 4 + e4] += f * value_of(packets[(s * SPLITS + z) * 4 + e4])
                    f = ptx.rcp(whole)
                    for e4 in range(4):
                        values[s * 4 + e4] *= f
            quantize(values, float32(0), sh, vector, room, first, count, tid)
            first = int32(first + slots * THREADS * 4)
        ptx.bar_sync(1, 256)

    return read_heads
