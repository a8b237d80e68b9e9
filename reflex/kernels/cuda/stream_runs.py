"""The products of a run of columns of linear_stream: a block format's codes, from its bytes in shared memory, times activations.

A run of 256 columns is two parts, each four products of the tensor cores; quant/stream.py says what codes a lane gives to them.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx, streamed
from .export import device
from .streams import lengthened, widened


@device
def joined(high, low):
    """The product with activations of 15 bits from those with their high and low bytes."""
    return int32(int32(high * 128) + low)


def chain(format):
    """Device function: products of a part, each added to those before, as sums (of rows g and g + 8 in the first half, of both in
    the second half or in all)."""
    record = format.record
    codes, (head_words, halves) = format.functions[2], (record.head, record.halves)
    o, o8 = record.rows
    mma = ptx.mma_s8 if record.signed else ptx.mma_us8

    @device
    def products(raw, p, t, x0, x1, x2, x3, x4, x5, x6, x7, first, last):
        a0, a2 = codes(raw, o, o + head_words, p, 0, t)
        a1, a3 = codes(raw, o8, o8 + head_words, p, 0, t)
        c0, c1, c2, c3 = mma(a0, a1, a2, a3, x0, x1, int32(0), first, int32(0), first)
        a0, a2 = codes(raw, o, o + head_words, p, 1, t)
        a1, a3 = codes(raw, o8, o8 + head_words, p, 1, t)
        c0, c1, c2, c3 = mma(a0, a1, a2, a3, x2, x3, c0, c1, c2, c3)
        d0, d1, d2, d3 = c0, c1, c2, c3
        if halves:
            d0, d1, d2, d3 = int32(0), last, int32(0), last
        a0, a2 = codes(raw, o, o + head_words, p, 2, t)
        a1, a3 = codes(raw, o8, o8 + head_words, p, 2, t)
        d0, d1, d2, d3 = mma(a0, a1, a2, a3, x4, x5, d0, d1, d2, d3)
        a0, a2 = codes(raw, o, o + head_words, p, 3, t)
        a1, a3 = codes(raw, o8, o8 + head_words, p, 3, t)
        d0, d1, d2, d3 = mma(a0, a1, a2, a3, x6, x7, d0, d1, d2, d3)
        return joined(c0, c1), joined(c2, c3), joined(d0, d1), joined(d2, d3)

    return products


def raised_chain(format):
    """The same where codes stay in place and so are 2**powers[j] times as large: a sum for each power, put together by Horner's
    rule, 2**powers[3] times as large as sums would be. By multiplications, which other units do than shifts and masks."""
    record = format.record
    codes, (head_words, halves) = format.functions[2], (record.head, record.halves)
    (o, o8), (p0, p1, p2, p3) = record.rows, record.powers
    mma = ptx.mma_s8 if record.signed else ptx.mma_us8
    second, third, fourth, four = 1 << p1 - p0, 1 << max(p2 - p1, 0), 1 << p3 - p2, p3 > p1

    @device
    def products(raw, p, t, x0, x1, x2, x3, x4, x5, x6, x7, first, last):
        zero, start = int32(0), first
        if four:
            start = zero
        a0, a2, b0, b2 = codes(raw, o, o + head_words, p, 0, t)
        a1, a3, b1, b3 = codes(raw, o8, o8 + head_words, p, 0, t)
        c0, c1, c2, c3 = mma(a0, a1, a2, a3, x0, x1, zero, zero, zero, zero)
        d0, d1, d2, d3 = mma(b0, b1, b2, b3, x2, x3, zero, start, zero, start)
        a0, a2, b0, b2 = codes(raw, o, o + head_words, p, 1, t)
        a1, a3, b1, b3 = codes(raw, o8, o8 + head_words, p, 1, t)
        if halves or four:
            e0, e1, e2, e3 = mma(a0, a1, a2, a3, x4, x5, zero, zero, zero, zero)
            f0, f1, f2, f3 = mma(b0, b1, b2, b3, x6, x7, zero, last, zero, last)
        else:
            c0, c1, c2, c3 = mma(a0, a1, a2, a3, x4, x5, c0, c1, c2, c3)
            d0, d1, d2, d3 = mma(b0, b1, b2, b3, x6, x7, d0, d1, d2, d3)
            e0, e1, e2, e3, f0, f1, f2, f3 = zero, zero, zero, zero, zero, zero, zero, zero
        n, m = int32(int32(joined(c0, c1) * second) + joined(d0, d1)), int32(int32(joined(c2, c3) * second) + joined(d2, d3))
        u, v = n, m
        if four:
            u = int32(int32(int32(int32(n * third) + joined(e0, e1)) * fourth) + joined(f0, f1))
            v = int32(int32(int32(int32(m * third) + joined(e2, e3)) * fourth) + joined(f2, f3))
        elif halves:
            u, v = int32(int32(joined(e0, e1) * second) + joined(f0, f1)), int32(int32(joined(e2, e3) * second) + joined(f2, f3))
        return n, m, u, v

    return products


def runner(format):
    """Device function: adds the products of a run of 256 columns to the sums of rows g and g + 8."""
    record = format.record
    head, load, _, scales = format.functions
    head_words, (o, o8) = record.head, record.rows
    halves, minimum, ragged = record.halves, record.minimum, format.block.elements < record.run
    meta_bytes, products = 4 * record.meta, raised_chain(format) if record.powers else chain(format)

    @device
    def scaled(y, n, xs, extra, s, m):
        y = ptx.fmaf(float32(s * xs), float32(n), y)
        if minimum:
            y = ptx.fmaf(m, extra, y)
        return y

    @device
    def both(raw, at, p, t):
        if halves:
            s0, s1, m0, m1 = scales(raw, at, at + head_words, p, t)
        else:
            s0, m0 = scales(raw, at, at + head_words, p, t)
            s1, m1 = s0, m0
        return s0, s1, m0, m1

    @device
    def part(y, y8, raw, at, at8, t, p, x_at, meta, groups):
        load(at, p, t, raw, o + head_words)
        load(at8, p, t, raw, o8 + head_words)
        mine = uint32(1 if int32((cuda.threadIdx.x >> 3) & 3) == t else 0)  # has activations in the lanes' own two columns
        x0, x1, x2, x3 = streamed.at128_if(x_at, mine)
        x4, x5, x6, x7 = streamed.at128_if(int32(x_at + 128), mine)
        xs, e0 = streamed.at64(meta)
        e1 = e0
        if halves:
            e1 = streamed.at32(int32(meta + 8))
        first, last = int32(0), int32(0)
        if not minimum:
            first, last = int32(e0), int32(e1)
        n0, n8, v0, v8 = products(raw, p, t, x0, x1, x2, x3, x4, x5, x6, x7, first, last)
        s0, s1, m0, m1 = both(raw, o, p, t)
        u0, u1, l0, l1 = both(raw, o8, p, t)
        if ragged and 4 * p + t >= groups:
            s0, s1, m0, m1 = float32(0), float32(0), float32(0), float32(0)
            u0, u1, l0, l1 = s0, s1, m0, m1
        grow = ptx.bits2f(xs)
        y = scaled(y, v0, grow, ptx.bits2f(e1), s1, m1)
        y8 = scaled(y8, v8, grow, ptx.bits2f(e1), u1, l1)
        if halves:
            y = scaled(y, n0, grow, ptx.bits2f(e0), s0, m0)
            y8 = scaled(y8, n8, grow, ptx.bits2f(e0), u0, l0)
        return y, y8

    @device
    def run(y, y8, raw, at, at8, t, x_at, meta, groups):
        """x_at: address of the lane's activations; meta: of its group's scale; groups: of the row, from this run's first on."""
        head(at, t, raw, o)
        head(at8, t, raw, o8)
        y, y8 = part(y, y8, raw, at, at8, t, 0, x_at, meta, groups)
        return part(y, y8, raw, at, at8, t, 1, int32(x_at + 256), int32(meta + 4 * meta_bytes), groups)

    return run


def float_runner(format):
    """The same of a run of 32 columns of numbers proper."""
    load, pair = format.functions
    words, wide = format.record.words, widened if format.record.rounded else lengthened

    @device
    def row(y, raw, o, x0, x1, x2, x3, x4, x5, x6, x7, xs):
        a, b = pair(raw, o, 0)
        total = ptx.fmaf(a, x0, float32(b * x1))
        a, b = pair(raw, o, 1)
        total = ptx.fmaf(a, x2, ptx.fmaf(b, x3, total))
        a, b = pair(raw, o, 2)
        total = ptx.fmaf(a, x4, ptx.fmaf(b, x5, total))
        a, b = pair(raw, o, 3)
        total = ptx.fmaf(a, x6, ptx.fmaf(b, x7, total))
        return ptx.fmaf(total, xs, y)

    @device
    def run(y, y8, raw, at, at8, t, x_at, meta, groups):
        load(at, t, raw, 0)
        load(at8, t, raw, words)
        w0, w1, w2, w3 = streamed.at128(x_at)
        xs = ptx.bits2f(streamed.at32(meta))
        x0, x1 = wide(w0)
        x2, x3 = wide(w1)
        x4, x5 = wide(w2)
        x6, x7 = wide(w3)
        y = row(y, raw, 0, x0, x1, x2, x3, x4, x5, x6, x7, xs)
        return y, row(y8, raw, words, x0, x1, x2, x3, x4, x5, x6, x7, xs)

    return run
