"""Products of the persistent decode kernel: rows of quantized weights with the activations, on tensor cores.

Activations are 15-bit integers with a scale per 32, split into two bytes: x = scale * (128 high + low). A warp multiplies 8 or
16 rows by a block of 256 columns at once, by m16n8k32 products of bytes: one for each sub-block of 32 columns, of which lane
4 r + c holds columns 8 c ... 8 c + 7 in rows r and r + 8. Operand B has the high bytes of the activations in column 2 p and the
low ones in 2 p + 1, where p is the sub-block's number modulo 4, and zeros elsewhere. So lane 4 r + c gets back the exact integer
sums of rows r and r + 8 for sub-blocks c and c + 4, to which it applies the scales. Formats with a scale per 16 columns put each
half of a sub-block into columns of its own.

Shared memory in bytes, from `vector`: two planes of `room + 64`, high and low bytes: column i of a block in place
(i >> 5 & 3) * 64 + (i >> 3 & 3) * 16 + (i >> 7) * 8 + (i & 7); {scale, scale * sum}[room / 32], group g of a block in place
(g & 3) * 2 + (g >> 2); -32 * sum of 16 [room / 16], in place (g & 3) * 4 + (g >> 2).
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device

LOW_NIBBLES, HIGH_NIBBLES = 0x0F0F0F0F, 0xF0F0F0F0
ROWS = 8  # of a tile, or twice as many
WARPS = 8
TEAM = 4  # warps that share a stage
SUMS = 256  # of a warp, in a pass of rows


@device
def factors_at(vector, room):
    return int32(vector + room * 2 + 128)


@device
def sums_at(vector, room):
    return int32(factors_at(vector, room) + (room >> 2))


@device
def vector_end(vector, room):
    return int32(sums_at(vector, room) + (room >> 2))


@device
def put(sh, vector, room, i, high, low, step, total, wide, tid):
    """Columns i ... i + 3 (four neighbouring threads have 16, eight have 32) into shared memory."""
    block = int32(i >> 8)
    at = int32(vector + block * 256 + ((i >> 5) & 3) * 64 + ((i >> 3) & 3) * 16 + ((i >> 7) & 1) * 8 + (i & 4))
    ptx.sts32(sh, at, high)
    ptx.sts32(sh, int32(at + room + 64), low)
    if tid & 3 == 0:
        at = int32(sums_at(vector, room) + block * 64 + ((i >> 4) & 3) * 16 + ((i >> 6) & 3) * 4)
        ptx.sts32(sh, at, uint32(int32(total * -32)))
    if tid & 7 == 0:
        at = int32(factors_at(vector, room) + block * 64 + ((i >> 5) & 3) * 16 + ((i >> 7) & 1) * 8)
        ptx.stsf2(sh, at, step, float32(step * float32(wide)))


@device
def load_four(sh, x, k, at):
    x[k], x[k + 1], x[k + 2], x[k + 3] = ptx.lds128(sh, at)


@device
def load_run(sh, q, k, at):
    """8 bytes from an even place."""
    shift = uint32((at & 2) * 8)
    at = int32(at & -4)
    a = ptx.lds32(sh, at)
    b = ptx.lds32(sh, int32(at + 4))
    c = ptx.lds32(sh, int32(at + 8))
    q[k] = ptx.shf_r(a, b, shift)
    q[k + 1] = ptx.shf_r(b, c, shift)


@device
def masks_of(n, masks):
    """All ones in the lanes whose columns of operand B have sub-blocks 0, 1, 2 and 3 (modulo 4)."""
    for k in range(4):
        masks[k] = uint32(0)
        if int32(n >> 1) == k:
            masks[k] = uint32(0xFFFFFFFF)


# ---- formats: load(...) asks for a tile's weights, use(...) multiplies them and asks for the next tile's ----------


def _four_bits(halves):
    """Blocks of 256 in 144 bytes: low and high nibbles are neighbouring sub-blocks, which have 6-bit scales and minima."""

    @device
    def load_codes(sh, at0, at1, c, q):
        for r in range(halves):
            at = int32(at0 + 16 + 8 * c)
            if r == 1:
                at = int32(at1 + 16 + 8 * c)
            for k in range(4):
                q[8 * r + 2 * k], q[8 * r + 2 * k + 1] = ptx.lds64(sh, int32(at + 32 * k))

    @device
    def load_heads(sh, at0, at1, q):
        load_four(sh, q, 16, at0)
        if halves == 2:
            load_four(sh, q, 20, at1)

    @device
    def load(sh, at0, at1, c, q):
        load_codes(sh, at0, at1, c, q)
        load_heads(sh, at0, at1, q)

    @device
    def use(sh, at0, at1, next0, next1, x_at, f_at, sum_at, below, columns, n, c, masks, q, sums):
        x = cuda.local.array(4, uint32)
        m = uint32(LOW_NIBBLES)
        h = uint32(HIGH_NIBBLES)
        load_four(sh, x, 0, int32(x_at + (n >> 1) * 64))
        f0, f1, f2, f3 = ptx.ldsf4(sh, int32(f_at + c * 16))
        a0, a1, a2, a3 = int32(0), int32(0), int32(0), int32(0)
        b0, b1, b2, b3 = int32(0), int32(0), int32(0), int32(0)
        d0, d1, d2, d3 = int32(0), int32(0), int32(0), int32(0)  # four chains: a product waits 33 cycles for the one before it
        e0, e1, e2, e3 = int32(0), int32(0), int32(0), int32(0)
        for k in range(2):
            even = masks[2 * k]
            odd = masks[2 * k + 1]
            i = 2 * k
            a0, a1, a2, a3 = ptx.mma_us8(
                uint32(q[i] & m), uint32(q[8 + i] & m), uint32(q[i + 1] & m), uint32(q[9 + i] & m),
                uint32(x[0] & even), uint32(x[1] & even), a0, a1, a2, a3,
            )  # fmt: skip
            b0, b1, b2, b3 = ptx.mma_us8(
                uint32(q[i + 4] & m), uint32(q[12 + i] & m), uint32(q[i + 5] & m), uint32(q[13 + i] & m),
                uint32(x[2] & even), uint32(x[3] & even), b0, b1, b2, b3,
            )  # fmt: skip
            d0, d1, d2, d3 = ptx.mma_us8(
                uint32(q[i] & h), uint32(q[8 + i] & h), uint32(q[i + 1] & h), uint32(q[9 + i] & h),
                uint32(x[0] & odd), uint32(x[1] & odd), d0, d1, d2, d3,
            )  # fmt: skip
            e0, e1, e2, e3 = ptx.mma_us8(
                uint32(q[i + 4] & h), uint32(q[12 + i] & h), uint32(q[i + 5] & h), uint32(q[13 + i] & h),
                uint32(x[2] & odd), uint32(x[3] & odd), e0, e1, e2, e3,
            )  # fmt: skip
        load_codes(sh, next0, next1, c, q)
        if c & 1:  # high nibbles stayed in place
            f0 *= float32(0.0625)
            f2 *= float32(0.0625)
        pick = uint32(0x4400 + 0x1111 * c)  # bytes c of two words, each twice
        for r in range(halves):
            low = float32(int32((int32(a0 + d0) << 7) + int32(a1 + d1)))  # exact, a multiple of 16 beyond 24 bits
            high = float32(int32((int32(b0 + e0) << 7) + int32(b1 + e1)))
            if r == 1:
                low = float32(int32((int32(a2 + d2) << 7) + int32(a3 + d3)))
                high = float32(int32((int32(b2 + e2) << 7) + int32(b3 + e3)))
            i = 16 + 4 * r
            both = ptx.prmt(q[i + 1], q[i + 2], pick)  # scale and minimum of sub-block c; in two high bits, those of c + 4
            rest = ptx.prmt(q[i + 3], uint32(q[i + 3] >> uint32(4)), pick)
            rest = uint32(uint32(rest & 0x000F000F) | uint32(uint32(both >> uint32(2)) & 0x00300030))
            both = uint32(both & 0x003F003F)
            one = ptx.sub2(uint32(both | 0x64006400), uint32(0x64006400))  # float16: 1024 + n, less 1024
            two = ptx.sub2(uint32(rest | 0x64006400), uint32(0x64006400))
            p = float32(ptx.h2f_lo(one) * low) * f0 + float32(ptx.h2f_lo(two) * high) * f2
            w = ptx.h2f_hi(one) * f1 + ptx.h2f_hi(two) * f3
            sums[r] += float32(ptx.h2f_lo(q[i]) * p - ptx.h2f_hi(q[i]) * w)
        load_heads(sh, next0, next1, q)

    return load, use


def _six_bits(halves):
    """Blocks of 256 in 210 bytes, a scale per 16: lanes with c below 2 have the first half of a sub-block."""

    @device
    def load(sh, at0, at1, c, q):
        pass

    @device
    def use(sh, at0, at1, next0, next1, x_at, f_at, sum_at, below, columns, n, c, masks, q, sums):
        x = cuda.local.array(8, uint32)
        f = cuda.local.array(4, float32)
        offsets = cuda.local.array(4, uint32)
        raw = cuda.local.array(12, uint32)
        codes = cuda.local.array(16, uint32)
        scales = cuda.local.array(10, uint32)
        m = uint32(LOW_NIBBLES)
        two = uint32(0x30303030)
        even = uint32(masks[0])
        odd = uint32(masks[2])
        if c >= 2:
            even = uint32(masks[1])
            odd = uint32(masks[3])
        at = int32(x_at + (n >> 2) * 64)
        load_four(sh, x, 0, at)
        load_four(sh, x, 4, int32(at + 128))
        at = int32(f_at + (c >> 1) * 16)
        f[0], _, f[2], _ = ptx.ldsf4(sh, at)
        f[1], _, f[3], _ = ptx.ldsf4(sh, int32(at + 32))
        load_four(sh, offsets, 0, int32(sum_at + c * 16))
        for r in range(halves):
            at = int32(at0)
            if r == 1:
                at = int32(at1)
            at = int32((at & -4) + 192)
            for k in range(5):
                scales[5 * r + k] = ptx.lds32(sh, int32(at + 4 * k))
        v0 = float32(0)
        v1 = float32(0)
        shift0 = uint32((at0 & 2) * 8)
        shift1 = uint32((at1 & 2) * 8)
        sign = uint32(24 - 8 * c)
        for k in range(8, 16):
            codes[k] = uint32(0)
        for half in range(2):
            for r in range(halves):
                at = int32(at0)
                if r == 1:
                    at = int32(at1)
                load_run(sh, raw, 6 * r, int32(at + 64 * half + 8 * c))
                load_run(sh, raw, 6 * r + 2, int32(at + 64 * half + 32 + 8 * c))
                load_run(sh, raw, 6 * r + 4, int32(at + 128 + 32 * half + 8 * c))
            for g in range(2):  # low nibbles, then high ones
                for r in range(halves):
                    for k in range(2):
                        a = raw[6 * r + k]
                        b = raw[6 * r + 2 + k]
                        v = raw[6 * r + 4 + k]
                        if g == 0:
                            codes[8 * r + k] = uint32((a & m) | ((v << uint32(4)) & two))
                            codes[8 * r + 2 + k] = uint32((b & m) | ((v << uint32(2)) & two))
                        else:
                            codes[8 * r + k] = uint32(((a >> uint32(4)) & m) | (v & two))
                            codes[8 * r + 2 + k] = uint32(((b >> uint32(4)) & m) | ((v >> uint32(2)) & two))
                i = 2 * half + g
                start = int32(offsets[i])
                w = 4 * g + 2 * half
                a0, a1, a2, a3 = ptx.mma_us8(
                    codes[0], codes[8], codes[1], codes[9], uint32(x[w] & even), uint32(x[w + 1] & even), int32(0), start, int32(0),
                    start,
                )  # fmt: skip
                a0, a1, a2, a3 = ptx.mma_us8(
                    codes[2], codes[10], codes[3], codes[11], uint32(x[w] & odd), uint32(x[w + 1] & odd), a0, a1, a2, a3
                )
                s = int32(int32(ptx.shf_r(scales[i], scales[i + 1], shift0) << sign) >> 24)
                v0 += float32(float32(int32(int32((a0 << 7) + a1) * s)) * f[i])
                if halves == 2:
                    s = int32(int32(ptx.shf_r(scales[5 + i], scales[6 + i], shift1) << sign) >> 24)
                    v1 += float32(float32(int32(int32((a2 << 7) + a3) * s)) * f[i])
        sums[0] += float32(ptx.h2f_lo(uint32(scales[4] >> shift0)) * v0)
        if halves == 2:
            sums[1] += float32(ptx.h2f_lo(uint32(scales[9] >> shift1)) * v1)

    return load, use


def _eight_bits(halves):
    """Eight blocks of 32 in 34 bytes each. A row may end among them."""

    @device
    def load(sh, at0, at1, c, q):
        pass

    @device
    def use(sh, at0, at1, next0, next1, x_at, f_at, sum_at, below, columns, n, c, masks, q, sums):
        x = cuda.local.array(4, uint32)
        d = cuda.local.array(2, uint32)
        last = int32(min(int32(7), int32((columns - 1) >> 5) - below))
        load_four(sh, x, 0, int32(x_at + (n >> 1) * 64))
        f0, _, f1, _ = ptx.ldsf4(sh, int32(f_at + c * 16))
        for k in range(2, 4):
            q[k] = uint32(0)
        d[1] = uint32(0)
        for g in range(2):
            a0, a1, a2, a3 = int32(0), int32(0), int32(0), int32(0)
            mine = int32(min(int32(4 * g + c), last))
            for r in range(halves):
                at = int32(at0)
                if r == 1:
                    at = int32(at1)
                d[r] = ptx.lds16(sh, int32(at + 34 * mine))
            for k in range(4):
                sub = int32(34 * min(int32(4 * g + k), last) + 2 + 8 * c)
                load_run(sh, q, 0, int32(at0 + sub))
                if halves == 2:
                    load_run(sh, q, 2, int32(at1 + sub))
                here = masks[k]
                a0, a1, a2, a3 = ptx.mma_s8(
                    q[0], q[2], q[1], q[3], uint32(x[2 * g] & here), uint32(x[2 * g + 1] & here), a0, a1, a2, a3
                )
            f = f0
            if g == 1:
                f = f1
            if 4 * g + c <= last:
                sums[0] += float32(ptx.h2f_lo(d[0]) * float32(int32((a0 << 7) + a1)) * f)
                if halves == 2:
                    sums[1] += float32(ptx.h2f_lo(d[1]) * float32(int32((a2 << 7) + a3)) * f)

    return load, use


# ---- the tiles of a stage ---------------------------------------------------------------------------------


def _stage(format, halves, nbytes):
    load, use = format(halves)
    rows = ROWS * halves
    bits = 2 + halves  # log2(rows)

    @device
    def place_of(base, begin, along, pitch, row, count, block):
        row = int32(min(row, int32(count - 1)))
        return int32(base + row * pitch + ((begin + row * along) & 15) + block * nbytes)

    @device
    def flush(partial, place, row, count, c, sums):
        value = sums[0]
        mine = int32(row)
        if halves == 2:  # lanes with even c go on with row r, those with odd c with row r + 8
            other = sums[1]
            if c & 1:
                value = sums[1]
                other = sums[0]
                mine = int32(row + ROWS)
            value += ptx.shfl_xor(other, 1)
        else:
            value += ptx.shfl_xor(value, 1)
        i = uint32(place + mine)
        held = float32(0)
        if mine < count and c < halves:
            held = partial[i]
        value += ptx.shfl_xor(value, 2)
        if mine < count and c < halves:
            partial[i] = float32(held + value)
        sums[0] = float32(0)
        sums[1] = float32(0)

    @device
    def stage(sh, partial, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane):
        n = int32(lane >> 2)
        c = int32(lane & 3)
        sums = cuda.local.array(2, float32)
        q = cuda.local.array(24, uint32)
        masks = cuda.local.array(4, uint32)
        masks_of(n, masks)
        tiles = int32(int32((count + rows - 1) >> bits) * units)
        work = int32((tiles * warp) >> 2)
        end = int32((tiles * warp + tiles) >> 2)
        block = int32(work)
        row = int32(n)
        while block >= units:
            block = int32(block - units)
            row = int32(row + rows)
        sums[0] = float32(0)
        sums[1] = float32(0)
        for k in range(24):
            q[k] = uint32(0)
        first_x = int32(vector + (n & 1) * (room + 64) + skipped * 256 + c * 16)
        first_f = int32(factors_at(vector, room) + skipped * 64)
        at0 = place_of(base, begin, along, pitch, row, count, block)
        at1 = place_of(base, begin, along, pitch, int32(row + ROWS), count, block)
        if work < end:
            load(sh, at0, at1, c, q)
        while work < end:
            work = int32(work + 1)
            following = int32(block + 1)
            further = int32(row)
            next0 = int32(at0 + nbytes)
            next1 = int32(at1 + nbytes)
            if following == units:
                following = int32(0)
                further = int32(row + rows)
                next0 = place_of(base, begin, along, pitch, further, count, following)
                next1 = place_of(base, begin, along, pitch, int32(further + ROWS), count, following)
            if work == end:
                next0 = at0
                next1 = at1
            f_at = int32(first_f + block * 64)
            use(
                sh, at0, at1, next0, next1, int32(first_x + block * 256), f_at, int32(f_at + (room >> 2)),
                int32((skipped + block) * 8), columns, n, c, masks, q, sums,
            )  # fmt: skip
            if following == 0 or work == end:
                flush(partial, place, row, count, c, sums)
            at0 = next0
            at1 = next1
            block = following
            row = further

    return stage


def _both(format, nbytes):
    narrow = _stage(format, 1, nbytes)
    wide = _stage(format, 2, nbytes)

    @device
    def multiply(sh, partial, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane):
        """The products of `count` rows of `units` blocks in a stage at `base` with the vector's blocks from `skipped` on, as far as
        they are the warp's: added to partial[place + row]. Row i is at i * pitch + ((begin + i * along) & 15)."""
        if count > ROWS and int32((count + 2 * ROWS - 1) >> 4) * units >= TEAM:
            wide(sh, partial, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane)
        else:
            narrow(sh, partial, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane)

    return multiply


four_bits = _both(_four_bits, 144)
six_bits = _both(_six_bits, 210)
eight_bits = _both(_eight_bits, 272)
