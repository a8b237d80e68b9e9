"""IQ1_S: 256 values as 32 points of 8 from a ternary grid of 2048, shifted; 8 groups of 32 with a 3-bit scale.

    0    f16       scale d
    2    u8[32]    bits 0-7 of the grid indices
    34   u16[8]    group j: bits 8-10 of its four grid indices from bit 0 up; scale in bits 12-14; bit 15: shift down

value = d * (2 * scale + 1) * (coordinate + 1/8, or - 1/8)
"""

from . import codebook, combed, fields, grids
from .fragment import Fragment
from .lanes import Group, Large, odd_scales, points_of
from .stream import Stream, entries_of_bytes, unaligned


def decode(blocks):
    """uint8 [n, 50] -> float32 [n, 256]."""
    import numpy as np

    n = len(blocks)
    words = fields.u16(blocks, 34, 8)
    high = words[:, :, None] >> np.array([0, 3, 6, 9], dtype="u2") & 7
    indices = blocks[:, 2:34] | high.reshape(n, 32) << 8
    points = np.frombuffer(grids.iq1_s(), dtype="i1").reshape(-1, 8)[indices].reshape(n, 256)
    shifts = np.where(words >> 15, np.float32(-0.125), np.float32(0.125))
    scales = fields.f16(blocks, 0) * (2 * (words >> 12 & 7) + 1).astype("f4")
    return fields.scaled(scales, points + shifts.repeat(32, axis=1))


def unpack(memory):
    f16, u8, u16, float32, float_of_bits = memory.f16, memory.u8, memory.u16, memory.float32, memory.float_of_bits
    point = memory.table(grids.iq1_s())

    def element(address, index):
        lane = index >> 3
        word = u16(address + 34 + ((lane >> 2) << 1))
        number = u8(address + 2 + lane) | (((word >> (3 * (lane & 3))) & 7) << 8)
        eighths = 8 * point((number << 3) + (index & 7)) + 1 - 2 * (word >> 15)
        scale = f16(address) * float32(2 * ((word >> 12) & 7) + 1)
        return scale * (float32(eighths) * float_of_bits(0x3E000000))

    return element


def eighths():
    """The grid's points in eighths, eight more than they are."""
    return bytes(8 * coordinate + 8 & 255 for coordinate in grids.iq1_s())


def _indices(v, p):
    words = v.load(v.at(p, 34), v.words8)
    high = v.fields(v.pick(words, [k // 4 for k in range(32)]), [0, 3, 6, 9] * 8, 3)
    return v.b.or_(v.words(v.load(v.at(p, 2), v.bytes32)), v.b.shl(high, v.const(high.type, 8)))


def _group(v, p, reader, indices):
    scales, minimums = _scales(v, v.ints(v.load(v.at(p, 34), v.words8)), p)
    return Group(scales, minimums, points_of(reader, eighths(), 8, indices), bias=8)


def _scales(v, words, p):
    """Scales of eighths, and an eighth up or down, for the words of the groups of 32."""
    if v.subs == 2:
        step, places = v.half_splat(p, 16), v.b.lshr(v.twice(words), v.const(v.ints16, 12))
        minimums = v.float_levels([(2 * (k & 7) + 1) * (-1 if k & 8 else 1) / 8 for k in range(16)], places)
        return odd_scales(v, places, step, 0.125, bits=3), v.b.fmul(minimums, step)
    scales = odd_scales(v, v.b.lshr(words, v.const(words.type, 12)), v.half_splat(p, 8), 0.125, bits=3)
    down = v.b.icmp_unsigned(">=", words, v.const(words.type, 1 << 15))
    shifts = v.b.select(down, v.const(scales.type, -1.0), v.const(scales.type, 1.0))
    return v.twice(scales), v.twice(v.b.fmul(scales, shifts))


def _combed(v, pointers):
    rows = (pointers * 2)[:2]
    octets = combed.low_bytes(v, [v.at(p, 2) for p in rows])
    high = combed.high_bits(v, [v.at(p, 34) for p in rows])
    starts = [16 * (j // 4) + 3 * (j % 4) for j in range(8)]
    scales, minimums = zip(*(_scales(v, v.ints(v.load(v.at(p, 34), v.words8)), p) for p in pointers), strict=True)
    return combed.ternary_points(v, grids.iq1_s(), octets, high, starts, scales, minimums=minimums)


LANES = Large(50, _group, indices=_indices, gathers=_indices, combed=_combed)


def _fragment(ptx, base, function):
    """A lane reads what belongs to the two groups whose scales it has."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point, join = ptx.words(eighths(), 2), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (50 * step + t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - t, 0, wanted)
        start = (at - int32(t - 2)) & -4
        for i in range(3):
            raw[o + 1 + i] = ptx.ldg32_if(start + 8 * t, 4 * i, wanted)
        raw[o + 4] = ptx.ldg32_if(start + 4 * t, 32, wanted)
        raw[o + 5] = ptx.ldg32_if(start + 4 * t, 36, wanted)
        raw[o + 6] = uint32(uint32(int32(at - int32(t - 2)) & 2) << uint32(3))

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        pass

    def codes(raw, head, o, c, j, t, shift):
        lane, k = int32(2 * c + (j >> 1)), head + 1 + (j & 1)
        low = ptx.prmt(ptx.shfl_four(ptx.shf_r(raw[k], raw[k + 1], raw[head + 6]), lane), uint32(0), uint32(0x4440 + t))
        word = ptx.shfl_four(ptx.shf_r(raw[head + 4], raw[head + 5], raw[head + 6]), lane)
        high = uint32(uint32(word >> uint32(16 * (j & 1) + 3 * t)) & uint32(7))
        a, b = point(uint32(uint32(high * uint32(256)) + low))
        return join(a, b, uint32(0), uint32(0))

    def scales(raw, head, t, part):
        """A code is 8 * (coordinate + 1), so the minimum is -7 or -9 times the scale."""
        d, both = float32(ptx.h2f_lo(raw[head]) * float32(0.125)), ptx.shf_r(raw[head + 4], raw[head + 5], raw[head + 6])
        s0 = float32(d * float32(int32(2 * int32(uint32(both >> uint32(12)) & uint32(7)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(uint32(both >> uint32(28)) & uint32(7)) + 1)))
        m0, m1 = float32(-7), float32(-7)
        if both & uint32(0x8000):
            m0 = float32(-9)
        if both & uint32(0x80000000):
            m1 = float32(-9)
        return s0, s1, float32(s0 * m0), float32(s1 * m1)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 7, 2, 0, _fragment, planes=4, tiled=False, table=eighths)


def nibbles():
    """The grid's points, one more than they are: coordinate i in the low half of byte i, coordinate 4 + i in its high half."""
    points = bytes(coordinate + 1 & 255 for coordinate in grids.iq1_s())
    return bytes(points[i + k] | points[i + k + 4] << 4 for i in range(0, len(points), 8) for k in range(4))


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 1))
    point = function(entries_of_bytes(ptx, 0))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(at)

    def load(at, p, t, raw, o):
        read(int32(at + 2 + 16 * p + 4 * t), raw, o)
        raw[o + 3] = ptx.at16(int32(at + 34 + 8 * p + 2 * t))

    def indexed(raw, o, k):
        """The point k of four."""
        high = uint32(raw[o + 3] << uint32(8 - 3 * k)) if k < 3 else uint32(raw[o + 3] >> uint32(1))
        return point(raw, word(raw, o, 0, 0), k, uint32(high & uint32(0x700)))

    indexed = function(indexed)

    def codes(raw, head, o, p, i, t):
        """High halves of bytes stay in place."""
        first, second, low, high = indexed(raw, o, 2 * i), indexed(raw, o, 2 * i + 1), uint32(0x0F0F0F0F), uint32(0xF0F0F0F0)
        return uint32(first & low), uint32(second & low), uint32(first & high), uint32(second & high)

    def scales(raw, head, o, p, t):
        bits, d = raw[o + 3], ptx.h2f_lo(raw[head])
        s = ptx.fmaf(d, float32(int32(uint32(bits >> uint32(11)) & uint32(14))), d)
        eighth = ptx.bits2f(uint32(uint32(uint32(bits << uint32(16)) & uint32(0x80000000)) | uint32(0x3E000000)))
        return float32(s * float32(1 / 16)), float32(s * float32(eighth - float32(1)))

    return head, load, codes, scales


STREAM = Stream(50, 2, 1, 4, _stream, order=codebook.HALVES, minimum=True, tables=((nibbles, 2048, 1),), powers=(0, 4, 0, 4))
