"""Products of the persistent decode kernel: 16 rows of one unit (256 columns) of quantized weights with the activations.

Activations are 15-bit integers with a scale per 32, split into two bytes: x = scale * (128 high + low). The int8 tensor
product m16n8k32 has the 16 rows as A; its 8 columns B are (group of columns of the weights, high or low), zero where a lane's
values belong to another group, so that after a few products lane 4 g + t holds the sums of group t for rows g and g + 8.
From there on every lane applies scales to its own groups, and the four lanes of a row add up.

Shared memory in bytes, from `vector`: high[room], low[room], {scale, scale * sum of 32}[room / 32], -32 * sum of 16 [room / 16],
64 zeros. `left`, `right`: places of the unit of rows g and g + 8. sums: float32[2], added to. Every product is made twice:
with `both`, and for tiles of at most 8 rows, which have no right side.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device

LOW_NIBBLES, HIGH_NIBBLES = 0x0F0F0F0F, 0xF0F0F0F0


@device
def four_bit_head(sh, at, t):
    """The head of a block: d and dmin; the 6-bit scales and minima of the two groups of lane t, a byte each."""
    d, s0, s1, s2 = ptx.lds128(sh, at)
    shift = uint32((t & 1) * 16)
    s0 = uint32(s0 >> shift)
    s1 = uint32(s1 >> shift)
    s2 = uint32(s2 >> shift)
    a = uint32(0)
    b = uint32(0x0F0F)
    c = uint32(0x3030)
    if t < 2:
        a = uint32(0x3F3F)
        b = uint32(0)
        c = uint32(0)
    scales = uint32((s0 & a) | (s2 & b) | ((s0 >> uint32(2)) & c))
    minima = uint32((s1 & a) | ((s2 >> uint32(4)) & b) | ((s1 >> uint32(2)) & c))
    return d, scales, minima


@device
def four_bit_sum(d, scales, minima, low, high, f0, f1, f2, f3):
    """d * (scales . products) - dmin * (minima . sums); the products of high nibbles are 16 times too large."""
    p = float32(int32(int32(scales & 255) * low)) * f0 + float32(int32(int32(scales >> uint32(8)) * int32(high >> 4))) * f2
    n = float32(int32(minima & 255)) * f1 + float32(int32(minima >> uint32(8))) * f3
    return float32(ptx.h2f_lo(d) * p - ptx.h2f_hi(d) * n)


def four_bit_product(both):
    """Blocks of 256 in 144 bytes: lane t of a row has the t-th 64 columns, two groups of 32 in nibbles."""

    @device
    def four_bits(sh, left, right, vector, room, unit, lane, sums):
        q = cuda.local.array(16, uint32)
        x = cuda.local.array(16, uint32)
        t = int32(lane & 3)
        g = int32(lane >> 2)
        ld, ls, lm = four_bit_head(sh, left, t)
        left = int32(left + 16 + t * 32)
        q[0], q[1], q[2], q[3] = ptx.lds128(sh, left)
        q[4], q[5], q[6], q[7] = ptx.lds128(sh, int32(left + 16))
        if both:
            rd, rs, rm = four_bit_head(sh, right, t)
            right = int32(right + 16 + t * 32)
            q[8], q[9], q[10], q[11] = ptx.lds128(sh, right)
            q[12], q[13], q[14], q[15] = ptx.lds128(sh, int32(right + 16))
        else:
            for k in range(8):
                q[8 + k] = uint32(0)
        at = int32(vector + room * 2 + (room >> 1))  # zeros
        if (g >> 1) == t:
            at = int32(vector + (g & 1) * room + unit * 256 + t * 64)
        for k in range(4):
            x[k * 4], x[k * 4 + 1], x[k * 4 + 2], x[k * 4 + 3] = ptx.lds128(sh, int32(at + k * 16))
        f0, f1, f2, f3 = ptx.ldsf4(sh, int32(vector + room * 2 + unit * 64 + t * 16))
        m = uint32(LOW_NIBBLES)
        h = uint32(HIGH_NIBBLES)
        n = int32(0)
        # four chains of two products: they take a while
        a0, a1, a2, a3 = ptx.mma_us8(
            uint32(q[0] & m), uint32(q[8] & m), uint32(q[1] & m), uint32(q[9] & m), x[0], x[1], n, n, n, n
        )
        b0, b1, b2, b3 = ptx.mma_us8(
            uint32(q[0] & h), uint32(q[8] & h), uint32(q[1] & h), uint32(q[9] & h), x[8], x[9], n, n, n, n
        )
        c0, c1, c2, c3 = ptx.mma_us8(
            uint32(q[2] & m), uint32(q[10] & m), uint32(q[3] & m), uint32(q[11] & m), x[2], x[3], n, n, n, n
        )
        d0, d1, d2, d3 = ptx.mma_us8(
            uint32(q[2] & h), uint32(q[10] & h), uint32(q[3] & h), uint32(q[11] & h), x[10], x[11], n, n, n, n
        )
        a0, a1, a2, a3 = ptx.mma_us8(
            uint32(q[4] & m), uint32(q[12] & m), uint32(q[5] & m), uint32(q[13] & m), x[4], x[5], a0, a1, a2, a3
        )
        b0, b1, b2, b3 = ptx.mma_us8(
            uint32(q[4] & h), uint32(q[12] & h), uint32(q[5] & h), uint32(q[13] & h), x[12], x[13], b0, b1, b2, b3
        )
        c0, c1, c2, c3 = ptx.mma_us8(
            uint32(q[6] & m), uint32(q[14] & m), uint32(q[7] & m), uint32(q[15] & m), x[6], x[7], c0, c1, c2, c3
        )
        d0, d1, d2, d3 = ptx.mma_us8(
            uint32(q[6] & h), uint32(q[14] & h), uint32(q[7] & h), uint32(q[15] & h), x[14], x[15], d0, d1, d2, d3
        )
        low = int32(int32(a0 + c0) * 128 + int32(a1 + c1))
        high = int32(int32(b0 + d0) * 128 + int32(b1 + d1))
        sums[0] += four_bit_sum(ld, ls, lm, low, high, f0, f1, f2, f3)
        if both:
            low = int32(int32(a2 + c2) * 128 + int32(a3 + c3))
            high = int32(int32(b2 + d2) * 128 + int32(b3 + d3))
            sums[1] += four_bit_sum(rd, rs, rm, low, high, f0, f1, f2, f3)

    return four_bits


@device
def word(sh, at):
    """A 32-bit word at an even place."""
    low = ptx.lds32(sh, int32(at & -4))
    high = ptx.lds32(sh, int32((at & -4) + 4))
    return ptx.shf_r(low, high, uint32((at & 2) * 8))


@device
def mask(yes):
    value = uint32(0)
    if yes:
        value = uint32(0xFFFFFFFF)
    return value


def six_bit_product(both):
    """Blocks of 256 in 210 bytes: 16 groups of 16; four products of 4 groups each, lane t has plane t of every product."""
    sides = 2 if both else 1

    @device
    def six_bits(sh, left, right, vector, room, unit, lane, sums):
        a = cuda.local.array(8, uint32)
        for k in range(8):
            a[k] = uint32(0)
        t = int32(lane & 3)
        g = int32(lane >> 2)
        m = uint32(LOW_NIBBLES)
        two = uint32(0x30303030)
        z0 = mask((g >> 1) == 0)
        z1 = mask((g >> 1) == 1)
        z2 = mask((g >> 1) == 2)
        z3 = mask((g >> 1) == 3)
        xat = int32(vector + (g & 1) * room + unit * 256 + (g >> 1) * 32 + t * 4)
        ld = ptx.lds16(sh, int32(left + 208))
        lp = float32(0)
        rp = float32(0)
        for half in range(2):
            ls = ptx.lds16(sh, int32(left + 192 + half * 8 + t * 2))
            rs = uint32(0)
            if both:
                rs = ptx.lds16(sh, int32(right + 192 + half * 8 + t * 2))
            n0, n1 = ptx.lds64(sh, int32(vector + room * 2 + (room >> 2) + unit * 64 + half * 32 + t * 8))
            f = ptx.ldsf(sh, int32(vector + room * 2 + unit * 64 + half * 32 + t * 8))
            lt = int32(0)
            rt = int32(0)
            for part in range(2):
                lo = int32(half * 64 + part * 16)
                hi = int32(128 + half * 32 + part * 16)
                xw = ptx.lds32(sh, int32(xat + half * 128 + part * 16))
                for side in range(sides):
                    at = int32(left + t * 4)
                    if side == 1:
                        at = int32(right + t * 4)
                    l0 = word(sh, int32(at + lo))
                    l1 = word(sh, int32(at + lo + 32))
                    h = word(sh, int32(at + hi))
                    a[side] = uint32((l0 & m) | ((h << uint32(4)) & two))
                    a[2 + side] = uint32((l1 & m) | ((h << uint32(2)) & two))
                    a[4 + side] = uint32(((l0 >> uint32(4)) & m) | (h & two))
                    a[6 + side] = uint32(((l1 >> uint32(4)) & m) | ((h >> uint32(2)) & two))
                n = int32(n0)
                sl = int32(int32(ls << uint32(24)) >> 24)
                sr = int32(int32(rs << uint32(24)) >> 24)
                if part == 1:
                    n = int32(n1)
                    sl = int32(int32(ls << uint32(16)) >> 24)
                    sr = int32(int32(rs << uint32(16)) >> 24)
                c0, c1, c2, c3 = ptx.mma_us8(a[0], a[1], a[2], a[3], uint32(xw & z0), uint32(xw & z1), int32(0), n, int32(0), n)
                c0, c1, c2, c3 = ptx.mma_us8(a[4], a[5], a[6], a[7], uint32(xw & z2), uint32(xw & z3), c0, c1, c2, c3)
                lt = int32(lt + int32(c0 * 128 + c1) * sl)
                if both:
                    rt = int32(rt + int32(c2 * 128 + c3) * sr)
            lp += float32(lt) * f
            if both:
                rp += float32(rt) * f
        sums[0] += ptx.h2f_lo(ld) * lp
        if both:
            sums[1] += ptx.h2f_lo(ptx.lds16(sh, int32(right + 208))) * rp

    return six_bits


@device
def eight_bits(sh, left, right, vector, room, unit, columns, lane, sums):
    """Eight blocks of 32 in 34 bytes: a product per block, in two sets of four; lane t has blocks t and t + 4."""
    t = int32(lane & 3)
    g = int32(lane >> 2)
    xat = int32(vector + (g & 1) * room + unit * 256 + (g >> 1) * 32 + t * 4)
    for part in range(2):
        x0 = ptx.lds32(sh, int32(xat + part * 128))
        x1 = ptx.lds32(sh, int32(xat + part * 128 + 16))
        c0 = int32(0)
        c1 = int32(0)
        c2 = int32(0)
        c3 = int32(0)
        for k in range(4):
            o = int32((part * 4 + k) * 34 + 2 + t * 4)
            w0 = word(sh, int32(left + o))
            w1 = word(sh, int32(right + o))
            w2 = word(sh, int32(left + o + 16))
            w3 = word(sh, int32(right + o + 16))
            y0 = uint32(0)
            y1 = uint32(0)
            if (g >> 1) == k:
                y0 = x0
                y1 = x1
            c0, c1, c2, c3 = ptx.mma_s8(w0, w1, w2, w3, y0, y1, c0, c1, c2, c3)
        f = ptx.ldsf(sh, int32(vector + room * 2 + unit * 64 + part * 32 + t * 8))
        ld = ptx.lds16(sh, int32(left + (part * 4 + t) * 34))
        rd = ptx.lds16(sh, int32(right + (part * 4 + t) * 34))
        lp = float32(ptx.h2f_lo(ld) * float32(int32(c0 * 128 + c1)) * f)
        rp = float32(ptx.h2f_lo(rd) * float32(int32(c2 * 128 + c3)) * f)
        if unit * 256 + part * 128 + t * 32 < columns:  # a row may end within a unit
            sums[0] += lp
            sums[1] += rp
