"""Products of the persistent decode kernel: rows of quantized weights with the activations, by dp4a.

Activations are 15-bit integers with a scale per 32, split into two bytes: x = scale * (128 high + low). A warp takes two rows
of 4 units (1024 columns, a slice) at once, 4 lanes per unit: a lane has 64 columns, whose activations it keeps in registers
while it goes on to other rows of the same slice. Scales are decoded once per 64 columns; high nibbles are used in place.

Shared memory in bytes, from `vector`: four planes of `room / 4 + 16` with the high bytes: column i is in plane (i >> 4) & 3, at
(i >> 6) * 16 + (i & 15), so that neighbouring lanes read neighbouring 16 bytes; four such planes of low bytes; {scale, scale *
sum of 32}[room / 32]; -32 * sum of 16 [room / 16].
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device

LOW_NIBBLES, HIGH_NIBBLES = 0x0F0F0F0F, 0xF0F0F0F0


@device
def load_plane(sh, x, k, at, low_at):
    """16 activations: words k...k+4 are the high bytes, k+16...k+20 the low ones."""
    x[k], x[k + 1], x[k + 2], x[k + 3] = ptx.lds128(sh, at)
    x[16 + k], x[17 + k], x[18 + k], x[19 + k] = ptx.lds128(sh, int32(at + low_at))


@device
def store_sum(partial, at, value, row, count, lane):
    """Add up the 16 lanes of a row, and store."""
    for k in range(4):
        value += ptx.shfl_xor(value, 8 >> k)
    if lane & 15 == 0 and row < count:
        partial[uint32(at + row)] = value


@device
def slice_at(work, pairs, end):
    """The slice and the pair of rows that a piece of work is."""
    part = int32(0)
    if pairs < end:
        part = int32(uint32(work) // uint32(pairs))
    return part, int32(work - part * pairs)


@device
def scale_of(word, shift):
    """A signed byte."""
    return int32(int32(word << uint32(shift)) >> 24)


@device
def four_bits(sh, partial, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place, stride, lane):
    """Blocks of 256 in 144 bytes: lane t has the t-th 64 columns, two groups of 32 in nibbles."""
    x = cuda.local.array(32, uint32)
    q = cuda.local.array(8, uint32)
    t = int32(lane & 3)
    plane = int32((room >> 2) + 16)
    factors = int32(vector + plane * 8)
    m = uint32(LOW_NIBBLES)
    h = uint32(HIGH_NIBBLES)
    shift = uint32((t & 1) * 16)
    ma = uint32(0)
    mb = uint32(0x0F0F)
    mc = uint32(0x3030)
    if t < 2:
        ma = uint32(0x3F3F)
        mb = uint32(0)
        mc = uint32(0)
    f0 = float32(0)
    f1 = float32(0)
    f2 = float32(0)
    f3 = float32(0)
    block = int32(0)
    held = int32(-1)
    part, pair = slice_at(work, pairs, end)
    while work < end:
        row = int32(pair * 2 + (lane >> 4))
        if part != held:
            held = int32(part)
            unit = int32(part * 4 + ((lane >> 2) & 3))
            block = int32(min(unit, int32(units - 1)))
            at = int32(block * 64 + t * 16)
            f0, f1, f2, f3 = ptx.ldsf4(sh, int32(factors + at))
            if unit >= units:
                f0 = float32(0)
                f1 = float32(0)
                f2 = float32(0)
                f3 = float32(0)
            for c in range(4):
                load_plane(sh, x, c * 4, int32(vector + at + c * plane), int32(plane * 4))
            block = int32(base + block * 144)
        at = int32(block + min(row, int32(count - 1)) * row_bytes)
        d, s0, s1, s2 = ptx.lds128(sh, at)
        at = int32(at + 16 + t * 32)
        q[0], q[1], q[2], q[3] = ptx.lds128(sh, at)
        q[4], q[5], q[6], q[7] = ptx.lds128(sh, int32(at + 16))
        s0 = uint32(s0 >> shift)
        s1 = uint32(s1 >> shift)
        s2 = uint32(s2 >> shift)
        scales = uint32((s0 & ma) | (s2 & mb) | ((s0 >> uint32(2)) & mc))
        minima = uint32((s1 & ma) | ((s2 >> uint32(4)) & mb) | ((s1 >> uint32(2)) & mc))
        lh = int32(0)
        ll = int32(0)
        hh = int32(0)
        hl = int32(0)
        for k in range(8):
            w = uint32(q[k] & m)
            v = uint32(q[k] & h)
            lh = ptx.dp4a(w, x[k], lh)
            ll = ptx.dp4a(w, x[16 + k], ll)
            hh = ptx.dp4a_us(v, x[8 + k], hh)
            hl = ptx.dp4a_us(v, x[24 + k], hl)
        low = int32((lh << 7) + ll)
        high = int32(int32((hh << 7) + hl) >> 4)
        p = float32(int32(int32(scales & 255) * low)) * f0 + float32(int32(int32(scales >> uint32(8)) * high)) * f2
        n = float32(int32(minima & 255)) * f1 + float32(int32(minima >> uint32(8))) * f3
        store_sum(partial, int32(place + part * stride), float32(ptx.h2f_lo(d) * p - ptx.h2f_hi(d) * n), row, count, lane)
        work = int32(work + step)
        pair = int32(pair + step)
        if pair >= pairs:
            pair = int32(0)
            part = int32(part + 1)


@device
def load_run(sh, q, k, at, shift):
    """16 bytes from an even place; at: the aligned place before it."""
    a = ptx.lds32(sh, at)
    b = ptx.lds32(sh, int32(at + 4))
    c = ptx.lds32(sh, int32(at + 8))
    d = ptx.lds32(sh, int32(at + 12))
    e = ptx.lds32(sh, int32(at + 16))
    q[k] = ptx.shf_r(a, b, shift)
    q[k + 1] = ptx.shf_r(b, c, shift)
    q[k + 2] = ptx.shf_r(c, d, shift)
    q[k + 3] = ptx.shf_r(d, e, shift)


@device
def six_bits(sh, partial, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place, stride, lane):
    """Blocks of 256 in 210 bytes: lane t has 16 of every 32 columns of a half, the same bytes' low and high nibbles."""
    x = cuda.local.array(32, uint32)
    q = cuda.local.array(12, uint32)
    t = int32(lane & 3)
    plane = int32((room >> 2) + 16)
    factors = int32(vector + plane * 8)
    m = uint32(LOW_NIBBLES)
    two = uint32(0x30303030)
    first = int32(24 - (t & 1) * 8)  # of the scales' bytes
    f = cuda.local.array(4, float32)
    n = cuda.local.array(4, int32)
    for k in range(4):
        f[k] = float32(0)
        n[k] = int32(0)
    block = int32(0)
    held = int32(-1)
    part, pair = slice_at(work, pairs, end)
    while work < end:
        row = int32(pair * 2 + (lane >> 4))
        if part != held:
            held = int32(part)
            unit = int32(part * 4 + ((lane >> 2) & 3))
            block = int32(min(unit, int32(units - 1)))
            at = int32(factors + block * 64 + (t >> 1) * 32)
            f[0], _, f[1], _ = ptx.ldsf4(sh, at)
            f[2], _, f[3], _ = ptx.ldsf4(sh, int32(at + 16))
            if unit >= units:
                for k in range(4):
                    f[k] = float32(0)
            at = int32(factors + (room >> 2) + block * 64 + (t >> 1) * 32 + (t & 1) * 4)
            for k in range(4):
                n[k] = int32(ptx.lds32(sh, int32(at + k * 8)))
            at = int32(vector + block * 64 + (t >> 1) * 32 + (t & 1) * plane)
            for k in range(4):
                load_plane(sh, x, k * 4, int32(at + (k & 1) * 2 * plane + (k >> 1) * 16), int32(plane * 4))
            block = int32(base + block * 210)
        at = int32(block + min(row, int32(count - 1)) * row_bytes)
        shift = uint32((at & 2) * 8)
        d = ptx.lds16(sh, int32(at + 208))
        at = int32(at & -4)
        i = int32(at + (t >> 1) * 64 + (t & 1) * 16)
        load_run(sh, q, 0, i, shift)
        load_run(sh, q, 4, int32(i + 32), shift)
        load_run(sh, q, 8, int32(at + 128 + t * 16), shift)
        i = int32(at + 192 + (t >> 1) * 8)
        s0 = ptx.lds32(sh, i)
        s1 = ptx.lds32(sh, int32(i + 4))
        s2 = ptx.lds32(sh, int32(i + 8))
        s0 = ptx.shf_r(s0, s1, shift)
        s1 = ptx.shf_r(s1, s2, shift)
        a0 = int32(0)
        a1 = int32(0)
        a2 = int32(0)
        a3 = int32(0)
        b0 = int32(n[0])
        b1 = int32(n[1])
        b2 = int32(n[2])
        b3 = int32(n[3])
        for k in range(4):
            v = q[8 + k]
            w = uint32((q[k] & m) | ((v << uint32(4)) & two))
            a0 = ptx.dp4a(w, x[k], a0)
            b0 = ptx.dp4a(w, x[16 + k], b0)
            w = uint32((q[4 + k] & m) | ((v << uint32(2)) & two))
            a1 = ptx.dp4a(w, x[4 + k], a1)
            b1 = ptx.dp4a(w, x[20 + k], b1)
            w = uint32(((q[k] >> uint32(4)) & m) | (v & two))
            a2 = ptx.dp4a(w, x[8 + k], a2)
            b2 = ptx.dp4a(w, x[24 + k], b2)
            w = uint32(((q[4 + k] >> uint32(4)) & m) | ((v >> uint32(2)) & two))
            a3 = ptx.dp4a(w, x[12 + k], a3)
            b3 = ptx.dp4a(w, x[28 + k], b3)
        v0 = float32(int32(int32((a0 << 7) + b0) * scale_of(s0, first))) * f[0]
        v1 = float32(int32(int32((a1 << 7) + b1) * scale_of(s0, first - 16))) * f[1]
        v2 = float32(int32(int32((a2 << 7) + b2) * scale_of(s1, first))) * f[2]
        v3 = float32(int32(int32((a3 << 7) + b3) * scale_of(s1, first - 16))) * f[3]
        store_sum(partial, int32(place + part * stride), float32(ptx.h2f_lo(d) * ((v0 + v1) + (v2 + v3))), row, count, lane)
        work = int32(work + step)
        pair = int32(pair + step)
        if pair >= pairs:
            pair = int32(0)
            part = int32(part + 1)


@device
def eight_bits(sh, partial, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place, stride, lane):
    """Eight blocks of 32 in 34 bytes each: lane t has blocks 2 t and 2 t + 1. A row may end within a unit."""
    x = cuda.local.array(32, uint32)
    q = cuda.local.array(8, uint32)
    t = int32(lane & 3)
    plane = int32((room >> 2) + 16)
    factors = int32(vector + plane * 8)
    f0 = float32(0)
    f1 = float32(0)
    column = int32(0)
    block = int32(0)
    held = int32(-1)
    part, pair = slice_at(work, pairs, end)
    while work < end:
        row = int32(pair * 2 + (lane >> 4))
        if part != held:
            held = int32(part)
            column = int32(part * 1024 + ((lane >> 2) & 3) * 256 + t * 64)
            i = int32(min(column, int32((columns - 1) & -64)))
            at = int32(i >> 2)
            f0, _, f1, _ = ptx.ldsf4(sh, int32(factors + at))
            for c in range(4):
                load_plane(sh, x, c * 4, int32(vector + at + c * plane), int32(plane * 4))
            block = int32(base + (i >> 5) * 34)
        at = int32(block + min(row, int32(count - 1)) * row_bytes)
        value = float32(0)
        for k in range(2):
            d = ptx.lds16(sh, int32(at + k * 34))
            i = int32(at + k * 34 + 2)
            shift = uint32((i & 2) * 8)
            i = int32(i & -4)
            load_run(sh, q, 0, i, shift)
            load_run(sh, q, 4, int32(i + 16), shift)
            a = int32(0)
            b = int32(0)
            for j in range(8):
                a = ptx.dp4a(q[j], x[k * 8 + j], a)
                b = ptx.dp4a(q[j], x[16 + k * 8 + j], b)
            f = f0
            if k == 1:
                f = f1
            product = float32(ptx.h2f_lo(d) * float32(int32((a << 7) + b)) * f)
            if column + k * 32 < columns:
                value += product
        store_sum(partial, int32(place + part * stride), value, row, count, lane)
        work = int32(work + step)
        pair = int32(pair + step)
        if pair >= pairs:
            pair = int32(0)
            part = int32(part + 1)
