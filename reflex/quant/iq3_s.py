"""IQ3_S: 256 values as 64 points of 4 from a grid of 512; a sign bit each; 8 groups of 32 with a 4-bit scale.

    0     f16      scale d
    2     u8[64]   bits 0-7 of the grid indices
    66    u8[8]    bit 8 of the grid indices, lowest bit first
    74    u8[32]   sign bits, lowest bit first
    106   u8[4]    scales, even ones in the low halves

value = d * (2 * scale + 1) * signed coordinate
"""

from . import codebook, combed, fields, grids
from .fragment import Fragment
from .lanes import Group, Large, apart, odd_scales, points_of, turned_octets
from .stream import Stream, entries_of_bytes, unaligned


def decode(blocks):
    """uint8 [n, 110] -> float32 [n, 256]."""
    import numpy as np

    indices = blocks[:, 2:66] | fields.planes(blocks, 66, 8, 1, 1).astype("u2") << 8
    points = np.frombuffer(grids.iq3_s(), dtype="i1").reshape(-1, 4)[indices].reshape(len(blocks), 256)
    scales = fields.f16(blocks, 0) * (2 * fields.planes(blocks, 106, 4, 1, 4) + 1).astype("f4")
    return fields.scaled(scales, fields.signed(points, blocks[:, 74:106]))


def unpack(memory):
    f16, u8, float32 = memory.f16, memory.u8, memory.float32
    point = memory.table(grids.iq3_s())
    high, sign, scale = fields.plane(memory, 66, 1, 1), fields.plane(memory, 74, 1, 1), fields.plane(memory, 106, 1, 4)

    def element(address, index):
        lane = index >> 2
        number = u8(address + 2 + lane) | (high(address, lane) << 8)
        value = point((number << 2) + (index & 3))
        if sign(address, index):
            value = -value
        return f16(address) * float32(2 * scale(address, index >> 5) + 1) * float32(value)

    return element


def _indices(v, p):
    low = v.words(v.load(v.at(p, 2), v.bytes64))
    return v.b.or_(low, v.flags(v.load(v.at(p, 66), v.bits(64)), low.type, 256))


def _group(v, p, reader, indices):
    points = points_of(reader, grids.iq3_s(), 4, indices)
    return Group(_scales(v, p), None, points, signs=turned_octets(v, v.load(v.at(p, 74), v.bytes32)))


def _scales(v, p):
    codes = v.splat(v.load(v.at(p, 106), v.int32), 16)
    return odd_scales(v, v.b.lshr(codes, v.vector(codes.type, [4 * (k // 2) for k in range(16)])), v.half_splat(p, 16))


def _combed(v, pointers):
    signs = [combed.signs_of_bytes(v, apart(v, v.load(v.at(p, 74), v.bytes32))) for p in pointers]
    ninth = [[v.load(v.at(p, 66), v.bits(64))] for p in pointers]
    octets, scales = [v.load(v.at(p, 2), v.bytes64) for p in pointers], [_scales(v, p) for p in pointers]
    return combed.points_of_four(v, grids.iq3_s(), octets, ninth, scales, signs)


def _octets(v, p):
    return v.load(v.at(p, 2), v.bytes64), v.load(v.at(p, 66), v.int64)


LANES = Large(110, _group, indices=_indices, gathers=_octets, combed=_combed)


def _fragment(ptx, base, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point = ptx.words(grids.iq3_s(), 1)
    signs, join = function(codebook.signs_of_eight(ptx)), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (110 * step + t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - t, 0, wanted)
        raw[o + 1] = ptx.ldg8_if(at, 106, wanted)
        start = (at - int32(t - 2)) & -4
        for i in range(3):  # the high bits of all indices, and the signs of two groups of 32
            raw[o + 2 + i] = ptx.ldg32_if(start, 64 + 4 * i, wanted)
            raw[o + 5 + i] = ptx.ldg32_if(start + 8 * t, 72 + 4 * i, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        for i in range(4):
            raw[o + i] = ptx.ldg16_if(at + t, 2 + 32 * c + 8 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        shift, k = uint32(shift ^ uint32(16)), head + 5 + (j & 1)
        high = ptx.shf_r(raw[head + 2 + c], raw[head + 3 + c], shift)
        bits = ptx.shfl_four(ptx.shf_r(raw[k], raw[k + 1], shift), int32(2 * c + (j >> 1)))
        high = uint32(high >> uint32(8 * j + 2 * t))
        a = point(uint32(uint32(raw[o + j] & uint32(255)) | uint32(uint32(high & uint32(1)) << uint32(8))))
        b = point(uint32(uint32(raw[o + j] >> uint32(8)) | uint32(uint32(high & uint32(2)) << uint32(7))))
        high_a, high_b = signs(ptx.prmt(bits, uint32(0), uint32(0x4440 + t)))
        return join(a, b, high_a, high_b)

    def scales(raw, head, t, part):
        d, four = ptx.h2f_lo(raw[head]), raw[head + 1]
        s0 = float32(d * float32(int32(2 * int32(four & uint32(15)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(four >> uint32(4)) + 1)))
        return s0, s1, float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 8, 2, 4, _fragment, planes=4, minimum=False, tiled=False, heavy=True, table=grids.iq3_s)


def _indices_of_levels():
    return bytes(level >> 1 for level in grids.iq3_s())


def _stream(ptx, function):
    """A level is 2 * index + 1, so that its negative has all bits of the index flipped: both are 2 * (code + 1/2)."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 2))
    read_signs, word_of_signs = map(function, unaligned(ptx, 1))
    point, quarters = function(entries_of_bytes(ptx, 0)), function(codebook.quarters(ptx))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(at)

    def load(at, p, t, raw, o):
        read(int32(at + 2 + 32 * p + 8 * t), raw, o)
        read_signs(int32(at + 74 + 16 * p + 4 * t), raw, o + 4)
        raw[o + 7] = ptx.at8(int32(at + 66 + 4 * p + t))
        raw[o + 8] = uint32(ptx.at8(int32(at + 106 + 2 * p + (t >> 1))) >> uint32(4 * (t & 1)))

    def half(raw, o, k, bits):
        """Word k: a point with these signs."""
        levels = point(raw, word(raw, o, k >> 2, 0), k & 3, uint32(uint32(raw[o + 7] << uint32(8 - k)) & uint32(256)))
        return uint32(levels ^ ptx.prmt(uint32(bits * uint32(0x10204080)), uint32(0), uint32(0xBA98)))

    half = function(half)

    def codes(raw, head, o, p, j, t):
        low, high = quarters(word_of_signs(raw, o + 4, 0, 0), j)
        return half(raw, o, 2 * j, low), half(raw, o, 2 * j + 1, high)

    def scales(raw, head, o, p, t):
        s = float32(ptx.h2f_lo(raw[head]) * float32(int32(2 * int32(raw[o + 8] & uint32(15)) + 1)))
        return float32(s + s), s

    return head, load, codes, scales


STREAM = Stream(110, 2, 1, 9, _stream, signed=True, minimum=True, tables=((_indices_of_levels, 512, 1),))
