"""IQ3_XXS: 256 values as 64 points of 4 from a grid of 256; signs by 7-bit index; 8 groups of 32 with a 4-bit scale.

    0    f16      scale d
    2    u8[64]   grid indices
    66   u32[8]   group j: four 7-bit sign indices from bit 0 up, one for 8 values; scale in bits 28-31

value = d * (2 * scale + 1) / 4 * signed coordinate
"""

from . import codebook, combed, fields, grids
from .fragment import Fragment
from .lanes import Group, Large, apart, odd_scales, points_of, scales_and_signs
from .stream import Stream, entries_of_bytes, unaligned


def decode(blocks):
    """uint8 [n, 98] -> float32 [n, 256]."""
    import numpy as np

    n = len(blocks)
    words = fields.u32(blocks, 66, 8)
    negative = words[:, :, None] >> np.array([0, 7, 14, 21], dtype="u4") & 127
    points = np.frombuffer(grids.iq3_xxs(), dtype="i1").reshape(-1, 4)[blocks[:, 2:66]].reshape(n, 256)
    scales = fields.f16(blocks, 0) * ((2 * (words >> 28) + 1).astype("f4") / 4)
    return fields.scaled(scales, fields.signed(points, np.frombuffer(grids.signs(), dtype="u1")[negative.reshape(n, 32)]))


def unpack(memory):
    f16, u8, u32, float32, float_of_bits = memory.f16, memory.u8, memory.u32, memory.float32, memory.float_of_bits
    point, signs = memory.table(grids.iq3_xxs()), memory.table(grids.signs())

    def element(address, index):
        word = u32(address + 66 + ((index >> 5) << 2))
        value = point((u8(address + 2 + (index >> 2)) << 2) + (index & 3))
        if (signs((word >> (7 * ((index >> 3) & 3))) & 127) >> (index & 7)) & 1:
            value = -value
        quarter = float_of_bits(0x3E800000)
        return f16(address) * (float32(2 * (word >> 28) + 1) * quarter) * float32(value)

    return element


def _indices(v, p):
    return v.load(v.at(p, 2), v.bytes64)


def _scalars(v, p):
    return lambda first, count: v.scalars(v.at(p, 2 + first), v.int8, count)


def _group(v, p, reader, indices):
    scales, signs = scales_and_signs(v, v.load(v.at(p, 66), v.ints8), p, 0.25)
    points = points_of(reader, grids.iq3_xxs(), 4, indices)
    return Group(scales, None, points, signs=signs)


def _combed(v, pointers):
    words = [apart(v, v.load(v.at(p, 66), v.ints8)) for p in pointers]
    codes = [v.b.bitcast(v.permutes.multishift(word, [28, 0, 0, 0] * 16), v.ints16) for word in words]
    scales = [odd_scales(v, code, v.half_splat(p, 16), 0.25) for code, p in zip(codes, pointers, strict=True)]
    sevens = [v.permutes.multishift(word, [0, 7, 14, 21, 0, 0, 0, 0] * 8) for word in words]
    signs = [combed.signs_of_bytes(v, v.permutes.affine(seven, combed.EVEN, 0)) for seven in sevens]
    return combed.points_of_four(v, grids.iq3_xxs(), [_indices(v, p) for p in pointers], [[] for _ in pointers], scales, signs)


LANES = Large(98, _group, indices=_indices, scalars=_scalars, gathers=lambda v, p: (_indices(v, p), None), combed=_combed)


def _fragment(ptx, base, function):
    """A lane reads the signs of the two groups whose scales it has."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point = ptx.words(grids.iq3_xxs(), 1)
    signs, join = function(codebook.signs_of_seven(ptx)), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (98 * step + 2 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - 2 * t, 0, wanted)
        for i in range(3):
            raw[o + 1 + i] = ptx.ldg32_if(((at - int32(2 * t - 2)) & -4) + 8 * t, 64 + 4 * i, wanted)
        raw[o + 4] = uint32(uint32(int32(at - int32(2 * t - 2)) & 2) << uint32(3))

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        for i in range(4):
            raw[o + i] = ptx.ldg16_if(at, 2 + 32 * c + 8 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        a, b = point(uint32(raw[o + j] & uint32(255))), point(uint32(raw[o + j] >> uint32(8)))
        k = head + 1 + (j & 1)
        word = ptx.shfl_four(ptx.shf_r(raw[k], raw[k + 1], raw[head + 4]), int32(2 * c + (j >> 1)))
        high_a, high_b = signs(uint32(uint32(word >> uint32(7 * t)) & uint32(127)))
        return join(a, b, high_a, high_b)

    def scales(raw, head, t, part):
        d = float32(ptx.h2f_lo(raw[head]) * float32(0.25))
        first = ptx.shf_r(raw[head + 1], raw[head + 2], raw[head + 4])
        second = ptx.shf_r(raw[head + 2], raw[head + 3], raw[head + 4])
        s0 = float32(d * float32(int32(2 * int32(first >> uint32(28)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(second >> uint32(28)) + 1)))
        return s0, s1, float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 5, 2, 4, _fragment, planes=4, minimum=False, tiled=False, table=grids.iq3_xxs)


def _sign_bits():
    """The 128 patterns of eight signs: that of coordinate i in bit 7 of byte i, that of coordinate 4 + i in bit 6."""
    words = (sum((byte >> i & 1) << 8 * i + 7 | (byte >> i + 4 & 1) << 8 * i + 6 for i in range(4)) for byte in grids.signs())
    return b"".join(word.to_bytes(4, "little") for word in words)


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 2))
    read_signs, word_of_signs = map(function, unaligned(ptx, 1))
    point, signs = function(entries_of_bytes(ptx, 0)), function(entries_of_bytes(ptx, 1))
    sevens = function(codebook.sevens(ptx))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(at)

    def load(at, p, t, raw, o):
        read(int32(at + 2 + 32 * p + 8 * t), raw, o)
        read_signs(int32(at + 66 + 16 * p + 4 * t), raw, o + 4)

    def half(raw, o, k, bits):
        """Word k: a point with the signs in the highest bits of bytes; ~x + 1 is -x, and no byte is 0."""
        levels = point(raw, word(raw, o, k >> 2, 0), k & 3, uint32(0))
        minus = ptx.prmt(bits, uint32(0), uint32(0xBA98))
        return uint32(uint32(levels ^ minus) + uint32(minus & uint32(0x01010101)))

    half = function(half)

    def codes(raw, head, o, p, j, t):
        bits = signs(raw, sevens(word_of_signs(raw, o + 4, 0, 0)), j, uint32(0))
        return half(raw, o, 2 * j, bits), half(raw, o, 2 * j + 1, uint32(bits * uint32(2)))

    def scales(raw, head, o, p, t):
        four = uint32(word_of_signs(raw, o + 4, 0, 0) >> uint32(28))
        return float32(float32(ptx.h2f_lo(raw[head]) * float32(0.25)) * float32(int32(2 * int32(four) + 1))), float32(0)

    return head, load, codes, scales


STREAM = Stream(98, 2, 1, 7, _stream, signed=True, tables=((grids.iq3_xxs, 256, 16), (_sign_bits, 128, 16)))
