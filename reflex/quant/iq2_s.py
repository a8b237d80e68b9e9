"""IQ2_S: 256 values as 32 points of 8 from a grid of 1024; a sign bit each; 16 groups of 16 with a 4-bit scale.

    0    f16      scale d
    2    u8[32]   bits 0-7 of the grid indices
    34   u8[32]   sign bits, lowest bit first
    66   u8[8]    bits 8-9 of the grid indices, four to a byte from the low bits up
    74   u8[8]    scales, even ones in the low halves

value = d * (2 * scale + 1) / 8 * signed coordinate
"""

from . import codebook, combed, fields, grids
from .fragment import Fragment
from .lanes import Group, Large, apart, odd_scales, points_of, sixteen_nibbles, turned_octets
from .stream import Stream, entries_of_bytes, unaligned


def decode(blocks):
    """uint8 [n, 82] -> float32 [n, 256]."""
    import numpy as np

    indices = blocks[:, 2:34] | fields.planes(blocks, 66, 8, 1, 2).astype("u2") << 8
    points = np.frombuffer(grids.iq2_s(), dtype="i1").reshape(-1, 8)[indices].reshape(len(blocks), 256)
    scales = fields.f16(blocks, 0) * ((2 * fields.planes(blocks, 74, 8, 1, 4) + 1).astype("f4") / 8)
    return fields.scaled(scales, fields.signed(points, blocks[:, 34:66]))


def unpack(memory):
    f16, u8, float32, float_of_bits = memory.f16, memory.u8, memory.float32, memory.float_of_bits
    point = memory.table(grids.iq2_s())
    high, sign, scale = fields.plane(memory, 66, 1, 2), fields.plane(memory, 34, 1, 1), fields.plane(memory, 74, 1, 4)

    def element(address, index):
        lane = index >> 3
        number = u8(address + 2 + lane) | (high(address, lane) << 8)
        value = point((number << 3) + (index & 7))
        if sign(address, index):
            value = -value
        eighth = float_of_bits(0x3E000000)
        return f16(address) * (float32(2 * scale(address, index >> 4) + 1) * eighth) * float32(value)

    return element


def _indices(v, p):
    low = v.words(v.load(v.at(p, 2), v.bytes32))
    high = v.words(v.pick(v.load(v.at(p, 66), v.bytes8), [k // 4 for k in range(32)]))
    high = v.b.and_(v.b.shl(high, v.vector(high.type, [8, 6, 4, 2] * 8)), v.const(high.type, 0x300))
    return v.b.or_(low, high)


def _group(v, p, reader, indices):
    scales = odd_scales(v, sixteen_nibbles(v, v.at(p, 74)), v.half_splat(p, 16), 0.125)
    points = points_of(reader, grids.iq2_s(), 8, indices)
    return Group(scales, None, points, signs=turned_octets(v, v.load(v.at(p, 34), v.bytes32)))


def _combed(v, pointers):
    scales = [odd_scales(v, sixteen_nibbles(v, v.at(p, 74)), v.half_splat(p, 16), 0.125) for p in pointers]
    signs = [combed.signs_of_bytes(v, apart(v, v.load(v.at(p, 34), v.bytes32))) for p in pointers]
    high = [v.splat(v.load(v.at(p, 66), v.int64), 8) for p in pointers]
    if len(pointers) == 1:
        octets = v.words(v.load(v.at(pointers[0], 2), v.bytes32))
        masks = [v.permutes.bits(v.b.bitcast(high[0], v.bytes64), [*range(k, 64, 2), *[0] * 32]) for k in (0, 1)]
        masks = [v.slice(mask, 0, 32) for mask in masks]
    else:
        octets = v.shuffle(*(v.load(v.at(p, 2), v.bytes32) for p in pointers), combed.beside([range(32), range(32, 64)]))
        both = v.b.bitcast(v.b.select(v.lane_mask(8, 0xAA), high[1], high[0]), v.bytes64)
        masks = [v.permutes.bits(both, combed.beside([range(k, 64, 2)] * 2)) for k in (0, 1)]
    return combed.points_of_eight(v, grids.iq2_s(), octets, masks, scales, signs)


LANES = Large(82, _group, indices=_indices, gathers=_indices, combed=_combed)


def _fragment(ptx, base, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point = ptx.words(grids.iq2_s(), 2)
    signs, join = function(codebook.signs_of_eight(ptx)), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (82 * step + t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - t, 0, wanted)
        raw[o + 1] = ptx.ldg8_if(at, 74, wanted)
        raw[o + 2] = ptx.ldg8_if(at, 78, wanted)
        start = (at - int32(t - 2)) & -4
        for i in range(3):  # the high bits of all indices; the rest and the signs of two groups of 32
            raw[o + 3 + i] = ptx.ldg32_if(start, 64 + 4 * i, wanted)
            raw[o + 6 + i] = ptx.ldg32_if(start + 8 * t, 4 * i, wanted)
            raw[o + 9 + i] = ptx.ldg32_if(start + 8 * t, 32 + 4 * i, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        pass

    def codes(raw, head, o, c, j, t, shift):
        shift, lane, k = uint32(shift ^ uint32(16)), int32(2 * c + (j >> 1)), head + 6 + (j & 1)
        high = ptx.shf_r(raw[head + 3 + c], raw[head + 4 + c], shift)
        high = uint32(uint32(high >> uint32(8 * j + 2 * t)) & uint32(3))
        byte = uint32(0x4440 + t)
        low = ptx.prmt(ptx.shfl_four(ptx.shf_r(raw[k], raw[k + 1], shift), lane), uint32(0), byte)
        bits = ptx.prmt(ptx.shfl_four(ptx.shf_r(raw[k + 3], raw[k + 4], shift), lane), uint32(0), byte)
        a, b = point(uint32(uint32(high * uint32(256)) + low))
        high_a, high_b = signs(bits)
        return join(a, b, high_a, high_b)

    def scales(raw, head, t, part):
        d, four = float32(ptx.h2f_lo(raw[head]) * float32(0.125)), raw[head + 1 + part]
        s0 = float32(d * float32(int32(2 * int32(four & uint32(15)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(four >> uint32(4)) + 1)))
        return s0, s1, float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 12, 2, 0, _fragment, planes=4, parts=2, minimum=False, tiled=False, heavy=True, table=grids.iq2_s)


def _places():
    return codebook.places(grids.iq2_s())


def _sign_places():
    return codebook.sign_places(range(256))


def _stream(ptx, function):
    int32, uint32 = ptx.i32, ptx.u32
    read, word = map(function, unaligned(ptx, 1))
    point, signs = function(entries_of_bytes(ptx, 0)), function(entries_of_bytes(ptx, 1))
    placed, scales_of = function(codebook.placed(ptx)), function(codebook.odd_pair(ptx))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(at)

    def load(at, p, t, raw, o):
        read(int32(at + 2 + 16 * p + 4 * t), raw, o)
        read(int32(at + 34 + 16 * p + 4 * t), raw, o + 3)
        raw[o + 6] = ptx.at8(int32(at + 66 + 4 * p + t))
        raw[o + 7] = ptx.at8(int32(at + 74 + 4 * p + t))

    def codes(raw, head, o, p, j, t):
        entry = point(raw, word(raw, o, 0, 0), j, uint32(uint32(raw[o + 6] << uint32(8 - 2 * j)) & uint32(0x300)))
        return placed(uint32(entry ^ signs(raw, word(raw, o + 3, 0, 0), j, uint32(0))))

    def scales(raw, head, o, p, t):
        return scales_of(raw[head], raw[o + 7])

    return head, load, codes, scales


STREAM = Stream(82, 2, 1, 8, _stream, signed=True, halves=True, tables=((_places, 1024, 1), (_sign_places, 256, 16)))
