"""Q4_0: 32 values of 4 bits, one half scale.

    0   f16      scale d
    2   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = d * (quant - 8)
"""

from . import fields
from .fragment import Fragment
from .lanes import Small
from .stream import NIBBLES, Stream, unaligned


def decode(blocks):
    """uint8 [n, 18] -> float32 [n, 32]."""
    return fields.f16(blocks, 0) * (fields.planes(blocks, 2, 16, 16, 4).astype("f4") - 8)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    quant = fields.plane(memory, 2, 16, 4)

    def element(address, index):
        return f16(address) * float32(quant(address, index) - 8)

    return element


LANES = Small(18, lambda v, blocks: v.nibbles([v.at(p, 2) for p in blocks]), bias=8)


def _fragment(ptx, base, function):
    """Lanes 0, 1 take even blocks and lanes 2, 3 odd ones: a lane's eight bytes are eight values of each half."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

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
        nibbles = uint32(0x000F000F)
        low, high = uint32(4 * j), uint32(4 * j + 8)
        shift = uint32(shift ^ uint32(16 - ((t >> 1) << 4)))  # even blocks have their codes two bytes further
        a, b = ptx.shf_r(raw[o], raw[o + 1], shift), ptx.shf_r(raw[o + 1], raw[o + 2], shift)
        return (
            uint32(uint32(uint32(a >> low) & nibbles) | base),
            uint32(uint32(uint32(a >> high) & nibbles) | base),
            uint32(uint32(uint32(b >> low) & nibbles) | base),
            uint32(uint32(uint32(b >> high) & nibbles) | base),
        )

    def scales(raw, head, t, part):
        s0, s1 = ptx.h2f_lo(raw[head]), ptx.h2f_lo(raw[head + 1])
        return s0, s1, float32(s0 * float32(-8)), float32(s1 * float32(-8))

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 2, 4, 3, _fragment, planes=2, raised=False, offset=8, hop=32)


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 4))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        start = int32(at + 72 * p + 18 * t)
        raw[o] = ptx.at16(start)
        read(int32(start + 2), raw, o + 1)

    def codes(raw, head, o, p, j, t):
        both, nibbles = word(raw, o + 1, j, 0), uint32(0x0F0F0F0F)
        return uint32(both & nibbles), uint32(uint32(both >> uint32(4)) & nibbles)

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[o]), float32(0)

    return head, load, codes, scales


STREAM = Stream(144, 2, 0, 7, _stream, order=NIBBLES, offset=8)
