"""Products of single bits for linear_stream: codes of one bit as they lie in a block times activations of 16 bits, bit by bit.

The 16 bits of 32 activations are 16 words, bit i of which belongs to activation i: one for each column of two products. Lane t of a
row gets columns 2t and 2t + 1 of both, which are bits 4t .. 4t + 3, the last of lane 3 being the sign: how often there is a bit in
both words. A weight is its scale times 2 * code - 1. Groups of 128 columns share a scale of their activations, of which lane t has
2 * 2**4t, and beside it what products are less by: the sum of its own group of 32.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx, streamed
from .dots import MAGIC
from .export import device

HELD = 16  # columns of a thread
MAGIC_BITS = 0x4B400000  # of MAGIC as a float32
MOST = 32767  # of an activation


def slicer(record, first_of, largest):
    """Device function: a thread's 16 values, of which a group of 32 has two threads, into shared memory; those of 128 columns are
    neighbours. column: of the group; wanted: whether the matrix has it."""
    meta = record.meta

    @device
    def swap(w, step, mask, shift):
        """Of each two words so far apart, the bits outside of `mask` of the first and those inside of the second change places."""
        for k in range(8):
            if k & step == 0:
                a, b = w[k], w[k + step]
                w[k] = ptx.lop3(a, uint32(b << shift), mask, 0xE4)
                w[k + step] = ptx.lop3(uint32(a >> shift), b, mask, 0xE4)

    @device
    def slice_bits(v, column, half, wanted, padded, sh):
        w = cuda.local.array(8, uint32)
        most = largest(v)
        if not wanted:
            most = float32(0)
        for k in range(3):
            most = max(most, ptx.shfl_xor(most, int32(1 << k)))
        grow, total = float32(float32(MOST) * ptx.rcp(max(most, float32(1e-30)))), int32(-HELD * MAGIC_BITS & 0xFFFFFFFF)
        if not wanted:
            grow = float32(0)
        for k in range(8):
            p, q = ptx.f2bits(ptx.fmaf(v[k], grow, float32(MAGIC))), ptx.f2bits(ptx.fmaf(v[k + 8], grow, float32(MAGIC)))
            total = int32(int32(p + q) + total)
            w[k] = ptx.prmt(p, q, uint32(0x5140))
        total = int32(total + ptx.shfl_xor_i(total, int32(1)))
        swap(w, 4, uint32(0x0F0F0F0F), uint32(4))
        swap(w, 2, uint32(0x33333333), uint32(2))
        swap(w, 1, uint32(0x55555555), uint32(1))
        take = uint32(0x5410)  # bits 0 .. 7 of both threads' values, or 8 .. 15
        if half:
            take = uint32(0x3276)
        for k in range(8):
            w[k] = ptx.prmt(w[k], ptx.shfl_xor_u(w[k], int32(1)), take)
        if column < padded:
            at = int32(first_of(padded) + int32(int32(column >> 1) + int32(half << 3)))
            ptx.sts128(sh, at, w[0], w[2], w[1], w[3])
            ptx.sts128(sh, int32(at + 4), w[4], w[6], w[5], w[7])
            if half == 0:
                scale, group = float32(most * float32(1 / MOST)), int32(meta * int32(column >> 5))
                own = float32(scale * float32(int32(2 << (int32(column >> 3) & 12))))
                ptx.sts64(sh, group, ptx.f2bits(own), ptx.f2bits(float32(-scale * float32(total))))

    return slice_bits


@device
def counted(a, b, x0, x1, t):
    """The products of 128 codes of one bit, of rows g and g + 8, with a lane's four columns."""
    top, zero = int32(8), int32(0)
    if t == 3:
        top = int32(-8)
    c0, c1, c2, c3 = streamed.mma_b1(a, b, x0, zero, zero, zero, zero)
    d0, d1, d2, d3 = streamed.mma_b1(a, b, x1, zero, zero, zero, zero)
    n = int32(int32(int32(int32(d0 * 2) + c1) * 2) + c0)
    m = int32(int32(int32(int32(d2 * 2) + c3) * 2) + c2)
    return int32(int32(d1 * top) + n), int32(int32(d3 * top) + m)


def bit_runner(format):
    """Device function: adds the products of a run of columns to the sums of rows g and g + 8 (stream_runs.py)."""
    record = format.record
    _, load, codes, scales = format.functions
    (o, o8), meta_bytes = record.rows, 4 * record.meta

    @device
    def part(y, y8, raw, at, at8, t, p, x_at, meta, groups):
        load(at, p, t, raw, o)
        load(at8, p, t, raw, o8)
        x0, x1 = streamed.at64(x_at)
        xs, extra = streamed.at64(meta)
        n, n8 = counted(codes(raw, 0, o, p, 0, t), codes(raw, 0, o8, p, 0, t), x0, x1, t)
        s, s8 = scales(raw, 0, o, p, t), scales(raw, 0, o8, p, t)
        if p and groups <= 4 * p:
            s, s8 = float32(0), float32(0)
        grow, more = ptx.bits2f(xs), ptx.bits2f(extra)
        return ptx.fmaf(s, ptx.fmaf(float32(n), grow, more), y), ptx.fmaf(s8, ptx.fmaf(float32(n8), grow, more), y8)

    @device
    def run(y, y8, raw, at, at8, t, x_at, meta, groups):
        y, y8 = part(y, y8, raw, at, at8, t, 0, x_at, meta, groups)
        y, y8 = part(y, y8, raw, at, at8, t, 1, int32(x_at + 256), int32(meta + 4 * meta_bytes), groups)
        y, y8 = part(y, y8, raw, at, at8, t, 2, int32(x_at + 512), int32(meta + 8 * meta_bytes), groups)
        return part(y, y8, raw, at, at8, t, 3, int32(x_at + 768), int32(meta + 12 * meta_bytes), groups)

    return run
