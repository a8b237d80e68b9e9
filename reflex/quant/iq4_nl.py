"""IQ4_NL: 32 values from 16 unevenly spaced levels, one half scale.

    0   f16      scale d
    2   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = d * level[code]
"""

from . import codebook, fields
from .fragment import Fragment
from .lanes import Small
from .stream import Stream, unaligned

LEVELS = bytes(n & 255 for n in (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))
SHIFTED = bytes(n ^ 128 for n in LEVELS)  # by 128: unsigned


def decode(blocks):
    """uint8 [n, 18] -> float32 [n, 32]."""
    import numpy as np

    return fields.f16(blocks, 0) * np.frombuffer(LEVELS, dtype="i1")[fields.planes(blocks, 2, 16, 16, 4)].astype("f4")


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    code, level = fields.plane(memory, 2, 16, 4), memory.table(LEVELS)

    def element(address, index):
        return f16(address) * float32(level(code(address, index)))

    return element


LANES = Small(18, lambda v, blocks: v.lookup(LEVELS, v.nibbles([v.at(p, 2) for p in blocks])), signed=True)


def _fragment(ptx, base, function):
    """Lanes 0, 1 take even blocks and lanes 2, 3 odd ones: a lane's eight bytes are eight values of each half."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    lookup = function(codebook.sixteen(ptx, SHIFTED))

    def place(row, step, t):
        return row + (8 * (t & 1) + 2)

    def load_head(at, step, t, last, wanted, raw, o):
        row = at - (8 * (t & 1) + 2)
        raw[o] = ptx.ldg16_if(row, int32(18 * min(int32(8 * step + 2 * t), last)), wanted)
        raw[o + 1] = ptx.ldg16_if(row, int32(18 * min(int32(8 * step + 2 * t + 1), last)), wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        start = (at + 18 * min(int32(8 * step + 2 * c + (t >> 1)), last)) & -4
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(start, 4 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        shift = uint32(shift ^ uint32(16 - ((t >> 1) << 4)))  # even blocks have their codes two bytes further
        w0, w1 = lookup(ptx.shf_r(raw[o], raw[o + 1], shift), j)
        w2, w3 = lookup(ptx.shf_r(raw[o + 1], raw[o + 2], shift), j)
        return w0, w1, w2, w3

    def scales(raw, head, t, part):
        s0, s1 = ptx.h2f_lo(raw[head]), ptx.h2f_lo(raw[head + 1])
        return s0, s1, float32(s0 * float32(-128)), float32(s1 * float32(-128))

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 2, 4, 3, _fragment, planes=2, raised=False, offset=128, hop=32, tiled=False)


def _stream(ptx, function):
    int32, float32 = ptx.i32, ptx.f32
    read, word = map(function, unaligned(ptx, 4))
    lookup = function(codebook.levels(ptx, LEVELS))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        start = int32(at + 72 * p + 18 * t)
        raw[o] = ptx.at16(start)
        read(int32(start + 2), raw, o + 1)

    def codes(raw, head, o, p, j, t):
        return lookup(word(raw, o + 1, j, 0))

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[o]), float32(0)

    return head, load, codes, scales


STREAM = Stream(144, 2, 0, 7, _stream, mixed=4, signed=True)
