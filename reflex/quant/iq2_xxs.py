"""IQ2_XXS: 256 values as 32 points of 8 from a grid of 256; signs by 7-bit index; 8 groups of 32 with a 4-bit scale.

    0   f16            scale d
    2   8 times:
        0   u8[4]      grid indices
        4   u32        four 7-bit sign indices from bit 0 up; scale in bits 28-31

value = d * (2 * scale + 1) / 8 * signed coordinate
"""

from . import codebook, combed, fields, grids
from .fragment import Fragment
from .lanes import Group, Large, odd_scales, points_of, scales_and_signs
from .stream import Stream, entries_of_bytes, unaligned


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


def _indices(v, p):
    return v.b.bitcast(v.pick(v.load(v.at(p, 2), v.ints16), range(0, 16, 2)), v.bytes32)


def _scalars(v, p):
    places = v.hidden(v.at(p, 2))
    return lambda first, count: [
        index for k in range(first, first + count, 4) for index in v.scalars(v.at(places, 2 * k), v.int8, 4)
    ]


def _group(v, p, reader, indices):
    words = v.pick(v.load(v.at(p, 2), v.ints16), range(1, 16, 2))
    scales, signs = scales_and_signs(v, words, p, 0.125)
    points = points_of(reader, grids.iq2_xxs(), 8, indices)
    return Group(scales, None, points, signs=signs)


def _combed(v, pointers):
    rows = [v.load(v.at(p, 2), v.bytes64) for p in pointers]
    codes = [v.b.bitcast(v.permutes.multishift(raw, [60, 0, 0, 0] * 16), v.ints16) for raw in rows]
    scales = [odd_scales(v, code, v.half_splat(p, 16), 0.125) for code, p in zip(codes, pointers, strict=True)]
    sevens = [v.permutes.multishift(raw, [32, 39, 46, 53, 0, 0, 0, 0] * 8) for raw in rows]
    signs = [combed.signs_of_bytes(v, v.permutes.affine(seven, combed.EVEN, 0)) for seven in sevens]
    places = [8 * m + k for m in range(8) for k in range(4)]
    if len(rows) == 1:
        octets = v.b.bitcast(v.pick(rows[0], [place for place in places for _ in (0, 1)]), v.words32)
    else:
        octets = v.permutes.chosen(*rows, combed.beside([places, [64 + place for place in places]]))
    return combed.points_of_eight(v, grids.iq2_xxs(), octets, [], scales, signs)


LANES = Large(66, _group, indices=_indices, scalars=_scalars, combed=_combed)


def _fragment(ptx, base, function):
    """A lane reads the indices and signs of the two groups whose scales it has."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point = ptx.words(grids.iq2_xxs(), 2)
    signs, join = function(codebook.signs_of_seven(ptx)), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (66 * step + 2)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - 2, 0, wanted)
        for i in range(5):
            raw[o + 1 + i] = ptx.ldg32_if((at & -4) + 16 * t, 4 * i, wanted)
        raw[o + 6] = uint32(uint32(int32(at) & 2) << uint32(3))

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        pass

    def codes(raw, head, o, c, j, t, shift):
        lane, k = int32(2 * c + (j >> 1)), head + 1 + 2 * (j & 1)
        indices = ptx.shfl_four(ptx.shf_r(raw[k], raw[k + 1], raw[head + 6]), lane)
        word = ptx.shfl_four(ptx.shf_r(raw[k + 1], raw[k + 2], raw[head + 6]), lane)
        a, b = point(ptx.prmt(indices, uint32(0), uint32(0x4440 + t)))
        high_a, high_b = signs(uint32(uint32(word >> uint32(7 * t)) & uint32(127)))
        return join(a, b, high_a, high_b)

    def scales(raw, head, t, part):
        d = float32(ptx.h2f_lo(raw[head]) * float32(0.125))
        first = ptx.shf_r(raw[head + 2], raw[head + 3], raw[head + 6])
        second = ptx.shf_r(raw[head + 4], raw[head + 5], raw[head + 6])
        s0 = float32(d * float32(int32(2 * int32(first >> uint32(28)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(second >> uint32(28)) + 1)))
        return s0, s1, float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 7, 2, 0, _fragment, planes=4, minimum=False, tiled=False, table=grids.iq2_xxs)


def _places():
    return codebook.places(grids.iq2_xxs())


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 2))
    point, signs = function(entries_of_bytes(ptx, 0)), function(entries_of_bytes(ptx, 1))
    placed, sevens = function(codebook.placed(ptx)), function(codebook.sevens(ptx))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(at)

    def load(at, p, t, raw, o):
        read(int32(at + 2 + 32 * p + 8 * t), raw, o)

    def codes(raw, head, o, p, j, t):
        entry = point(raw, word(raw, o, 0, 0), j, uint32(0))
        return placed(uint32(entry ^ signs(raw, sevens(word(raw, o, 1, 0)), j, uint32(0))))

    def scales(raw, head, o, p, t):
        four = uint32(word(raw, o, 1, 0) >> uint32(28))
        return float32(float32(ptx.h2f_lo(raw[head]) * float32(0.125)) * float32(int32(2 * int32(four) + 1))), float32(0)

    return head, load, codes, scales


STREAM = Stream(66, 2, 1, 4, _stream, signed=True, tables=((_places, 256, 16), (codebook.sign_places, 128, 16)))
