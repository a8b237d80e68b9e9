"""Block formats for integer tensor cores: their STREAM records (reflex/quant/stream.py), bound to this backend's instructions and
enumerated from the table of types; and the activations as such products want them. Called by linear_stream.py.

Dynamic shared memory in words, for `padded` columns (a multiple of 256; of 32 for numbers proper): for each group of 32 columns
{scale, extra} or, of `halves`, {scale, extra of 16, extra of 16, unused}; from `activations_at` on 64 words for each step of 128
columns: of each half of the four products, of each group of 32, four words of high bytes and four of low ones; then room to make
them in. A value is scale * (128 * high + low), low from 0 to 127; extra is the sum of the values for minimums, or
-offset times the sum of 128 * high + low as an integer. For numbers proper a group's activations are 16 words of two times 16
bits, by MAGIC_SHORT: 32768 more than they are; half floats where they are `rounded`. Of `bits`: 16 words as in stream_bits.py.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from ...quant import load
from ...quant.stream import ROUND, WIDE
from ...quant.types import TYPES
from . import ptx, streamed
from .dots import MAGIC, MOST
from .export import device
from .stream_bits import slicer

MAGIC_BITS = 0x4B400000  # of MAGIC as a float32
MOST_SHORT, MAGIC_SHORT = 32767, MAGIC + 32768  # of activations for numbers proper
HELD = 16  # columns of a thread


class Bound:
    """A format's record with its functions as device functions."""

    def __init__(self, block, record):
        self.block, self.record = block, record
        self.functions = tuple(map(device, record.build(streamed, device)))
        self.tables = [(make(), ways) for make, _, ways in record.tables]
        if [len(data) for data, _ in self.tables] != [4 * words for _, words, _ in record.tables]:
            raise ValueError(f"{block.name}: a table is not as long as its record says")


def bound():
    """Every format that has a STREAM, by the id of its type."""
    formats = {block.id: (block, getattr(load(block.name), "STREAM", None)) for block in TYPES.values()}
    return {id: Bound(block, record) for id, (block, record) in formats.items() if record}


@device
def round_of(padded):
    """Columns that a block makes ready at once: the room for them is missed where activations take much."""
    columns = int32(ROUND)
    if padded > WIDE:
        columns = int32(ROUND // 2)
    return columns


def activations_at(record):
    """Device function of `padded`: the word where activations begin."""
    meta = record.meta

    @device
    def at(padded):
        return int32((meta * (padded >> 5) + 31) & -32)

    return at


def _apart(record):
    """Whether a thread has words q and q + 2 of a group's first half and of its second, not four neighbours."""
    return record.mixed == 4


def _piece(record):
    """Device functions: which four values of a group are a thread's j-th, `half` being the thread's place in its pair; and what a
    group's pieces in shared memory are swapped by, so that neither four in a row nor eight threads meet a bank twice."""

    @device
    def near(half, j):
        return int32(4 * half + j)

    @device
    def apart(half, j):
        return int32(2 * half + (j & 1) + 4 * (j >> 1))

    @device
    def near_swap(group):
        return int32(group & 3)

    @device
    def apart_swap(group):
        return int32((group & 1) | ((group & 2) << 1))

    return (apart, apart_swap) if _apart(record) else (near, near_swap)


def _source(record):
    """Device function: which four values of a row are those q of a group."""
    piece = device(record.piece) if record.piece else None

    @device
    def straight(group, q):
        return int32(int32(group << 3) + q)

    @device
    def moved(group, q):
        return int32(int32(int32(group >> 3) << 6) + int32(piece(int32(group & 7), q)))

    return moved if piece else straight


def _words(record):
    """(order, put), device functions. `order` makes of a thread's four words, those of the values it has, four words as lanes of a
    product read them. `put`: into shared memory, the word `at` being the group's first."""
    mixed, order = record.mixed, record.order
    alike = all(order[q] < 4 and order[q + 4] == order[q] + 4 for q in range(4))  # in both halves, and within them
    i0, i1, i2, i3 = (order.index(k) if alike else k for k in range(4))
    places = sum(place << 4 * q for q, place in enumerate(order))
    first_places, second_places = places & 0xFFFF, places >> 16

    @device
    def ordered(w):
        if mixed:
            even, odd = uint32(0x5140), uint32(0x7362)
            a, b, c, d = w[0], w[1], w[2], w[3]
            w[0], w[1] = ptx.prmt(a, c, even), ptx.prmt(a, c, odd)
            w[2], w[3] = ptx.prmt(b, d, even), ptx.prmt(b, d, odd)

    @device
    def together(high, low, at, half, sh):
        at = int32(at + int32(half << 5))
        ptx.sts128(sh, at, high[i0], high[i1], high[i2], high[i3])
        ptx.sts128(sh, int32(at + 4), low[i0], low[i1], low[i2], low[i3])

    @device
    def scattered(high, low, at, half, sh):
        mine = uint32(first_places)
        if half:
            mine = uint32(second_places)
        for j in range(4):
            place = int32(uint32(mine >> uint32(4 * j)) & uint32(7))
            to = int32(at + int32(int32((place & 4) << 3) + int32(place & 3)))
            ptx.sts32(sh, to, high[j])
            ptx.sts32(sh, int32(to + 4), low[j])

    return ordered, (together if alike else scattered)


def quantizer(record):
    """Device function: a thread's 16 values, of which a group of 32 has two threads, into shared memory. column: of the group;
    wanted: whether the matrix has it."""
    offset, minimum, halves, meta = record.offset, record.minimum, record.halves, record.meta
    (order, put), first_of = _words(record), activations_at(record)

    @device
    def quantize(v, column, half, wanted, padded, sh):
        high = cuda.local.array(4, uint32)
        low = cuda.local.array(4, uint32)
        most = _largest(v)
        most = max(most, ptx.shfl_xor(most, int32(1)))
        if not wanted:
            most = float32(0)
        grow, total = float32(float32(MOST) * ptx.rcp(max(most, float32(1e-30)))), int32(-HELD * MAGIC_BITS & 0xFFFFFFFF)
        for j in range(4):
            p, q = ptx.f2bits(ptx.fmaf(v[4 * j], grow, float32(MAGIC))), ptx.f2bits(ptx.fmaf(v[4 * j + 1], grow, float32(MAGIC)))
            r = ptx.f2bits(ptx.fmaf(v[4 * j + 2], grow, float32(MAGIC)))
            s = ptx.f2bits(ptx.fmaf(v[4 * j + 3], grow, float32(MAGIC)))
            total = int32(int32(p + q + r + s) + total)
            pq, rs = ptx.prmt(p, q, uint32(0x5410)), ptx.prmt(r, s, uint32(0x5410))
            low[j] = uint32(ptx.prmt(pq, rs, uint32(0x6420)) & uint32(0x7F7F7F7F))
            high[j] = ptx.prmt(uint32(pq << uint32(1)), uint32(rs << uint32(1)), uint32(0x7531))
        if not halves:
            total = int32(total + ptx.shfl_xor_i(total, int32(1)))
        order(high)
        order(low)
        if column < padded:
            put(high, low, int32(first_of(padded) + int32(int32((column >> 7) << 6) + int32((column >> 2) & 24))), half, sh)
            scale = float32(most * float32(1 / MOST))
            extra = uint32(int32(-offset * total))
            if minimum:
                extra = ptx.f2bits(float32(scale * float32(total)))
            group = int32(meta * int32(column >> 5))
            if half == 0:
                ptx.sts64(sh, group, ptx.f2bits(scale), extra)
            elif halves:
                ptx.sts32(sh, int32(group + 2), extra)

    return quantize


@device
def _largest(v):
    """The largest magnitude of 16 values."""
    most = max(abs(v[0]), abs(v[1]))
    for k in range(2, HELD):
        most = max(most, abs(v[k]))
    return most


def shortener(record):
    """The same as pairs of 16 bits."""
    first_of, meta = activations_at(record), record.meta

    @device
    def shorten(v, column, half, wanted, padded, sh):
        w = cuda.local.array(8, uint32)
        most = _largest(v)
        most = max(most, ptx.shfl_xor(most, int32(1)))
        if not wanted:
            most = float32(0)
        grow, magic = float32(float32(MOST_SHORT) * ptx.rcp(max(most, float32(1e-30)))), float32(MAGIC_SHORT)
        for k in range(8):
            p, q = ptx.f2bits(ptx.fmaf(v[2 * k], grow, magic)), ptx.f2bits(ptx.fmaf(v[2 * k + 1], grow, magic))
            w[k] = ptx.prmt(p, q, uint32(0x5410))
        if column < padded:
            at = int32(first_of(padded) + int32(int32(column >> 1) + int32(half << 3)))
            ptx.sts128(sh, at, w[0], w[1], w[2], w[3])
            ptx.sts128(sh, int32(at + 4), w[4], w[5], w[6], w[7])
            if half == 0:
                ptx.stsf(sh, int32(meta * int32(column >> 5)), float32(most * float32(1 / MOST_SHORT)))

    return shorten


def halver(record):
    """The same as pairs of half floats, times a power of two: the numbers that ggml rounds activations to beside such weights."""
    first_of, meta = activations_at(record), record.meta

    @device
    def halve(v, column, half, wanted, padded, sh):
        w = cuda.local.array(8, uint32)
        most = _largest(v)
        most = max(most, ptx.shfl_xor(most, int32(1)))
        exponent = int32(max(int32(ptx.f2bits(most) >> uint32(23)), int32(15)))  # as in halves.py
        if most == float32(0) or not wanted:
            exponent = int32(127 + 14)
        shrink = ptx.bits2f(uint32(int32(268 - exponent) << 23))
        for k in range(8):
            w[k] = ptx.f2h2(float32(v[2 * k] * shrink), float32(v[2 * k + 1] * shrink))
        if column < padded:
            at = int32(first_of(padded) + int32(int32(column >> 1) + int32(half << 3)))
            ptx.sts128(sh, at, w[0], w[1], w[2], w[3])
            ptx.sts128(sh, int32(at + 4), w[4], w[5], w[6], w[7])
            if half == 0:
                ptx.stsf(sh, int32(meta * int32(column >> 5)), ptx.bits2f(uint32(int32(exponent - 14) << 23)))

    return halve


@device
def lengthened(word):
    """Two activations of 16 bits as float32."""
    high, magic = uint32(0x4B400000), float32(MAGIC_SHORT)
    a, b = ptx.bits2f(ptx.prmt(word, high, uint32(0x7610))), ptx.bits2f(ptx.prmt(word, high, uint32(0x7632)))
    return float32(a - magic), float32(b - magic)


@device
def widened(word):
    """Two half floats as float32."""
    return ptx.h2f_lo(word), ptx.h2f_hi(word)


def preparer(record, threads):
    """Device function: the activations in shared memory and, when `normed`, each warp's sum of their squares in `squares`.

    A round is 16 columns of each thread. Neighbours are read together, and change hands in shared memory where this round's and the
    next one's results will lie: 16 of a thread's own take half as many instructions as four times 4 that eight threads share.
    Activations that are rounded (`record.rounded`) are divided by their root mean square before that; others are not at all."""
    if record.bits:
        quantize = slicer(record, activations_at(record), _largest)
    else:
        quantize = (halver if record.rounded else shortener if record.floats else quantizer)(record)
    (piece_of, swap_of), source_of, first_of = _piece(record), _source(record), activations_at(record)
    run, rounded, stride, warps = record.run, record.rounded, 4 * threads, threads // 32
    if HELD * threads != ROUND:
        raise ValueError(f"a round has {HELD * threads} columns, quant/stream.py says {ROUND}")

    @device
    def bring(x, norm, normed, columns, first, v, w):
        tid = int32(cuda.threadIdx.x)
        for j in range(4):
            i = int32(min(int32(int32(first + stride * j) + int32(tid << 2)), int32(columns - 4)))
            v[4 * j], v[4 * j + 1], v[4 * j + 2], v[4 * j + 3] = ptx.ldcgf4(x, i)
            # a load under a plain `if` may be hoisted above it, and without a norm there is no address
            w[4 * j], w[4 * j + 1], w[4 * j + 2], w[4 * j + 3] = ptx.ldgf4_if(norm, i, uint32(normed))

    @device
    def share(total, squares):
        for k in range(5):
            total += ptx.shfl_xor(total, int32(16 >> k))
        if cuda.threadIdx.x & 31 == 0:
            squares[uint32(cuda.threadIdx.x >> 5)] = total

    @device
    def inverse_root(x, eps, columns, step, v, squares):
        """Of the mean square of a row whose first round is there."""
        total, i = float32(0), int32(cuda.threadIdx.x << 2)
        for j in range(4):
            if int32(i + stride * j) < int32(min(columns, step)):
                for k in range(4 * j, 4 * j + 4):
                    total = ptx.fmaf(v[k], v[k], total)
        i = int32(i + step)
        while i < columns:
            a, b, c, d = ptx.ldcgf4(x, i)
            total = ptx.fmaf(a, a, ptx.fmaf(b, b, ptx.fmaf(c, c, ptx.fmaf(d, d, total))))
            i = int32(i + stride)
        share(total, squares)
        cuda.syncthreads()
        total = float32(0)
        for k in range(warps):
            total += squares[uint32(k)]
        return ptx.rsqrt(total / float32(columns) + eps)

    @device
    def prepare(x, norm, normed, eps, columns, sh, squares):
        v = cuda.local.array(HELD, float32)
        w = cuda.local.array(HELD, float32)
        tid = int32(cuda.threadIdx.x)
        padded, total = int32((columns + run - 1) & -run), float32(0)
        half, pair, step, inverse = int32(tid & 1), int32(tid >> 1), round_of(padded), float32(1)
        first = int32(0)
        if rounded:
            bring(x, norm, normed, columns, first, v, w)
            if normed:
                inverse = inverse_root(x, eps, columns, step, v, squares)
        while first < padded:
            raw, column = int32(first_of(padded) + (first >> 1)), int32(first + int32(pair << 5))
            end = int32(min(padded, int32(first + step)))
            if not rounded:
                bring(x, norm, normed, columns, first, v, w)
            for j in range(4):
                piece = int32(int32(threads * j) + tid)
                i = int32(first + int32(piece << 2))
                if normed:
                    for k in range(4 * j, 4 * j + 4):
                        if rounded:
                            v[k] = float32(v[k] * inverse)
                        elif i < columns and i < end:
                            total = ptx.fmaf(v[k], v[k], total)
                        v[k] = float32(v[k] * w[k])
                if i < end:
                    to = int32(raw + int32((piece ^ swap_of(int32(piece >> 3))) << 2))
                    ptx.stsf4(sh, to, v[4 * j], v[4 * j + 1], v[4 * j + 2], v[4 * j + 3])
            cuda.syncthreads()
            mine = int32(min(pair, int32(int32(int32(end - first) >> 5) - 1)))  # beyond the last group: that one again, unused
            for j in range(4):
                piece = source_of(mine, piece_of(half, int32(j)))
                at = int32(raw + int32((piece ^ swap_of(int32(piece >> 3))) << 2))
                v[4 * j], v[4 * j + 1], v[4 * j + 2], v[4 * j + 3] = ptx.ldsf4(sh, at)
            cuda.syncthreads()
            if column >= end:
                column = padded
            quantize(v, column, half, int32(column < columns), padded, sh)
            first = int32(first + step)
            if rounded and first < padded:
                bring(x, norm, normed, columns, first, v, w)
        if normed and not rounded:
            share(total, squares)
        cuda.syncthreads()

    return prepare
