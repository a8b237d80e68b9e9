"""IQ2_XXS: 256 values as 32 points of 8 from a grid of 256; signs by 7-bit index; 8 groups of 32 with a 4-bit scale.

    0   f16            scale d
    2   8 times:
        0   u8[4]      grid indices
        4   u32        four 7-bit sign indices from bit 0 up; scale in bits 28-31

value = d * (2 * scale + 1) / 8 * signed coordinate
"""

from . import codebook, fields, grids
from .fragment import Fragment
from .lanes import RAISE, Group, Large, biased, flipped, odd_scales, points_of, raised, signs_of_words


def decode(blocks):
    """uint8 [n, 66] -> float32 [n, 256]."""
    import numpy as np

    n = len(blocks)
    indices = blocks[:, 2:].reshape(n, 8, 8)[:, :, :4].reshape(n, 32)
    words = fields.u32(blocks, 2, 16)[:, 1::2]  # [n, 8]
    negative = words[:, :, None] >> np.array([0, 7, 14, 21], dtype="u4") & 127
    points = np.frombuffer(grids.iq2_xxs(), dtype="i1").reshape(-1, 8)[indices].reshape(n, 256)
    scales = fields.f16(blocks, 0) * ((2 * (words >> 28) + 1).astype("f4") / 8)
    return fields.scaled(scales, fields.signed(points, np.frombuffer(grids.signs(), dtype="u1")[negative.reshape(n, 32)]))


def unpack(memory):
    f16, u8, u32, float32, float_of_bits = memory.f16, memory.u8, memory.u32, memory.float32, memory.float_of_bits
    point, signs = memory.table(grids.iq2_xxs()), memory.table(grids.signs())

    def element(address, index):
        group = address + 2 + ((index >> 5) << 3)
        lane, place = (index >> 3) & 3, index & 7
        word = u32(group + 4)
        value = point((u8(group + lane) << 3) + place)
        if (signs((word >> (7 * lane)) & 127) >> place) & 1:
            value = -value
        eighth = float_of_bits(0x3E000000)
        return f16(address) * (float32(2 * (word >> 28) + 1) * eighth) * float32(value)

    return element


def _group(v, p):
    words = v.pick(v.load(v.at(p, 2), v.ints16), range(1, 16, 2))
    scales = v.twice(odd_scales(v, v.b.lshr(words, v.const(words.type, 28)), v.splat(v.eighth(v.half(p)))))
    places, signs = v.hidden(v.at(p, 2)), signs_of_words(v, words)

    def indices(first, count):
        return [index for k in range(first, first + count, 4) for index in v.scalars(v.at(places, 2 * k), v.int8, 4)]

    points = points_of(v, raised(grids.iq2_xxs()), 8, indices)
    return Group(scales, biased(v, scales, RAISE), flipped(v, points, lambda i, count: v.run(signs, i, count)))


LANES = Large(66, _group)


def _fragment(ptx, base, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point = ptx.words(grids.iq2_xxs(), 2)
    signs, join = function(codebook.signs_of_seven(ptx)), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (66 * step + 2)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - 2, 0, wanted)
        raw[o + 1] = ptx.ldg16_if(at + 16 * t, 6, wanted)
        raw[o + 2] = ptx.ldg16_if(at + 16 * t, 14, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        for i in range(4):
            raw[o + 3 * i] = ptx.ldg8_if(at + t, 32 * c + 8 * i, wanted)
            raw[o + 3 * i + 1] = ptx.ldg16_if(at, 32 * c + 8 * i + 4, wanted)
            raw[o + 3 * i + 2] = ptx.ldg16_if(at, 32 * c + 8 * i + 6, wanted)

    def codes(raw, head, o, c, j, t, shift):
        a, b = point(raw[o + 3 * j])
        word = uint32(raw[o + 3 * j + 1] | uint32(raw[o + 3 * j + 2] << uint32(16)))
        high_a, high_b = signs(uint32(uint32(word >> uint32(7 * t)) & uint32(127)))
        return join(a, b, high_a, high_b)

    def scales(raw, head, t, part):
        d = float32(ptx.h2f_lo(raw[head]) * float32(0.125))
        s0 = float32(d * float32(int32(2 * int32(raw[head + 1] >> uint32(12)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(raw[head + 2] >> uint32(12)) + 1)))
        return s0, s1, float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 3, 2, 12, _fragment, planes=4, minimum=False, tiled=False)
