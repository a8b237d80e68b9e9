"""Q4_1: 32 values of 4 bits, a half scale and a half minimum.

    0   f16      scale d
    2   f16      minimum m
    4   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = d * quant + m
"""

from . import fields
from .fragment import Fragment
from .lanes import Small
from .stream import NIBBLES, Stream


def decode(blocks):
    """uint8 [n, 20] -> float32 [n, 32]."""
    return fields.f16(blocks, 0) * fields.planes(blocks, 4, 16, 16, 4).astype("f4") + fields.f16(blocks, 2)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    quant = fields.plane(memory, 4, 16, 4)

    def element(address, index):
        return f16(address) * float32(quant(address, index)) + f16(address + 2)

    return element


LANES = Small(20, lambda v, blocks: v.nibbles([v.at(p, 4) for p in blocks]), minimum_at=2)


def _fragment(ptx, base, function):
    """Lanes 0, 1 take even blocks and lanes 2, 3 odd ones: a lane's eight bytes are eight values of each half."""
    int32, uint32 = ptx.i32, ptx.u32

    def place(row, step, t):
        return row + (8 * (t & 1) + 4)

    def load_head(at, step, t, last, wanted, raw, o):
        row = at - (8 * (t & 1) + 4)
        raw[o] = ptx.ldg32_if(row, int32(20 * min(int32(8 * step + 2 * t), last)), wanted)
        raw[o + 1] = ptx.ldg32_if(row, int32(20 * min(int32(8 * step + 2 * t + 1), last)), wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        start = at + 20 * min(int32(8 * step + 2 * c + (t >> 1)), last)
        raw[o] = ptx.ldg32_if(start, 0, wanted)
        raw[o + 1] = ptx.ldg32_if(start, 4, wanted)

    def codes(raw, head, o, c, j, t, shift):
        nibbles = uint32(0x000F000F)
        low, high = uint32(4 * j), uint32(4 * j + 8)
        a, b = raw[o], raw[o + 1]
        return (
            uint32(uint32(uint32(a >> low) & nibbles) | base),
            uint32(uint32(uint32(a >> high) & nibbles) | base),
            uint32(uint32(uint32(b >> low) & nibbles) | base),
            uint32(uint32(uint32(b >> high) & nibbles) | base),
        )

    def scales(raw, head, t, part):
        return ptx.h2f_lo(raw[head]), ptx.h2f_lo(raw[head + 1]), ptx.h2f_hi(raw[head]), ptx.h2f_hi(raw[head + 1])

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 2, 4, 2, _fragment, planes=2, raised=False, hop=32)


def _stream(ptx, function):
    int32, uint32 = ptx.i32, ptx.u32

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        for i in range(5):
            raw[o + i] = ptx.at32(int32(at + 80 * p + 20 * t + 4 * i))

    def codes(raw, head, o, p, j, t):
        both, nibbles = raw[o + 1 + j], uint32(0x0F0F0F0F)
        return uint32(both & nibbles), uint32(uint32(both >> uint32(4)) & nibbles)

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[o]), ptx.h2f_hi(raw[o])

    return head, load, codes, scales


STREAM = Stream(160, 2, 0, 5, _stream, order=NIBBLES, minimum=True)
