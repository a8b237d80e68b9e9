"""IQ2_XS: 256 values as 32 points of 8 from a grid of 512; signs by 7-bit index; 16 groups of 16 with a 4-bit scale.

    0    f16       scale d
    2    u16[32]   grid index in bits 0-8, sign index in bits 9-15
    66   u8[8]     scales, even ones in the low halves

value = d * (2 * scale + 1) / 8 * signed coordinate
"""

from . import codebook, combed, fields, grids
from .fragment import Fragment
from .lanes import Group, Large, even_signs, odd_scales, points_of, sixteen_nibbles
from .stream import Stream, entries_of_halves, unaligned


def decode(blocks):
    """uint8 [n, 74] -> float32 [n, 256]."""
    import numpy as np

    words = fields.u16(blocks, 2, 32)
    points = np.frombuffer(grids.iq2_xs(), dtype="i1").reshape(-1, 8)[words & 511].reshape(len(blocks), 256)
    scales = fields.f16(blocks, 0) * ((2 * fields.planes(blocks, 66, 8, 1, 4) + 1).astype("f4") / 8)
    return fields.scaled(scales, fields.signed(points, np.frombuffer(grids.signs(), dtype="u1")[words >> 9]))


def unpack(memory):
    f16, u16, float32, float_of_bits = memory.f16, memory.u16, memory.float32, memory.float_of_bits
    point, signs = memory.table(grids.iq2_xs()), memory.table(grids.signs())
    scale = fields.plane(memory, 66, 1, 4)

    def element(address, index):
        word = u16(address + 2 + ((index >> 3) << 1))
        place = index & 7
        value = point(((word & 511) << 3) + place)
        if (signs(word >> 9) >> place) & 1:
            value = -value
        eighth = float_of_bits(0x3E000000)
        return f16(address) * (float32(2 * scale(address, index >> 4) + 1) * eighth) * float32(value)

    return element


def _indices(v, p):
    words = v.load(v.at(p, 2), v.words32)
    return v.b.and_(words, v.const(words.type, 511))


def _group(v, p, reader, indices):
    words = v.load(v.at(p, 2), v.words32)
    points = points_of(reader, grids.iq2_xs(), 8, indices)
    return Group(_scales(v, p), None, points, signs=even_signs(v, v.b.trunc(v.b.lshr(words, v.const(words.type, 9)), v.bytes32)))


def _scales(v, p):
    return odd_scales(v, sixteen_nibbles(v, v.at(p, 66)), v.half_splat(p, 16), 0.125)


def _combed(v, pointers):
    rows = [v.load(v.at(p, 2), v.bytes64) for p in pointers]
    signs = [combed.signs_of_words(v, v.permutes.affine(raw, combed.HIGH_EVEN, 0)) for raw in rows]
    if len(rows) == 1:
        octets = v.b.bitcast(rows[0], v.words32)
        ninth = v.b.and_(octets, v.const(octets.type, 256))
    else:
        octets, high = (v.permutes.chosen(*rows, combed.beside([range(k, 64, 2), range(64 + k, 128, 2)])) for k in (0, 1))
        ninth = v.b.and_(high, v.const(high.type, 1))
    masks = [v.b.icmp_unsigned("!=", ninth, v.const(ninth.type, 0))]
    return combed.points_of_eight(v, grids.iq2_xs(), octets, masks, [_scales(v, p) for p in pointers], signs)


LANES = Large(74, _group, indices=_indices, gathers=_indices, combed=_combed)


def _fragment(ptx, base, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point = ptx.words(grids.iq2_xs(), 2)
    signs, join = function(codebook.signs_of_seven(ptx)), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (74 * step + 2 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - 2 * t, 0, wanted)
        raw[o + 1] = ptx.ldg8_if(at - t, 66, wanted)
        raw[o + 2] = ptx.ldg8_if(at - t, 70, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        for i in range(4):
            raw[o + i] = ptx.ldg16_if(at, 2 + 32 * c + 8 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        a, b = point(uint32(raw[o + j] & uint32(511)))
        high_a, high_b = signs(uint32(raw[o + j] >> uint32(9)))
        return join(a, b, high_a, high_b)

    def scales(raw, head, t, part):
        d, four = float32(ptx.h2f_lo(raw[head]) * float32(0.125)), raw[head + 1 + part]
        s0 = float32(d * float32(int32(2 * int32(four & uint32(15)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(four >> uint32(4)) + 1)))
        return s0, s1, float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 3, 2, 4, _fragment, planes=4, parts=2, minimum=False, tiled=False, table=grids.iq2_xs, heavy=True)


def _places():
    return codebook.places(grids.iq2_xs())


def _stream(ptx, function):
    int32, uint32 = ptx.i32, ptx.u32
    read, word = map(function, unaligned(ptx, 2))
    point, signs = function(entries_of_halves(ptx, 0)), function(entries_of_halves(ptx, 1))
    placed = function(codebook.placed(ptx))
    scales_of = function(codebook.odd_pair(ptx))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(at)

    def load(at, p, t, raw, o):
        read(int32(at + 2 + 32 * p + 8 * t), raw, o)
        raw[o + 4] = ptx.at8(int32(at + 66 + 4 * p + t))

    def codes(raw, head, o, p, j, t):
        two = word(raw, o, j >> 1, 0)
        entry = point(raw, uint32(two & uint32(0x01FF01FF)), j & 1)
        return placed(uint32(entry ^ signs(raw, uint32(uint32(two >> uint32(9)) & uint32(0x007F007F)), j & 1)))

    def scales(raw, head, o, p, t):
        return scales_of(raw[head], raw[o + 4])

    return head, load, codes, scales


STREAM = Stream(74, 2, 1, 5, _stream, signed=True, halves=True, tables=((_places, 512, 16), (codebook.sign_places, 128, 16)))
