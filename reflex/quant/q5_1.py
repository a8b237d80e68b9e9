"""Q5_1: 32 values of 5 bits, a half scale and a half minimum.

    0   f16      scale d
    2   f16      minimum m
    4   u8[4]    bit 4 of value j in bit j, lowest bit first
    8   u8[16]   bits 0-3: value j in the low half of byte j, value j + 16 in its high half

value = d * quant + m
"""

from . import fields
from .fragment import Fragment
from .lanes import Small
from .q5_0 import with_fifths
from .stream import NIBBLES, Stream


def decode(blocks):
    """uint8 [n, 24] -> float32 [n, 32]."""
    quants = fields.planes(blocks, 8, 16, 16, 4) | fields.planes(blocks, 4, 4, 1, 1) << 4
    return fields.f16(blocks, 0) * quants.astype("f4") + fields.f16(blocks, 2)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    low, high = fields.plane(memory, 8, 16, 4), fields.plane(memory, 4, 1, 1)

    def element(address, index):
        return f16(address) * float32(low(address, index) | (high(address, index) << 4)) + f16(address + 2)

    return element


def _codes(v, blocks):
    fifth = v.bit_bytes([v.at(p, 4) for p in blocks], 16)
    return v.b.or_(v.nibbles([v.at(p, 8) for p in blocks]), fifth)


LANES = Small(24, _codes, minimum_at=2)


def _fragment(ptx, base, function):
    """Lanes 0, 1 take even blocks and lanes 2, 3 odd ones: a lane's eight bytes are eight values of each half."""
    int32, uint32 = ptx.i32, ptx.u32

    def place(row, step, t):
        return row + 4

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg32_if(at - 4, int32(24 * min(int32(8 * step + 2 * t), last)), wanted)
        raw[o + 1] = ptx.ldg32_if(at - 4, int32(24 * min(int32(8 * step + 2 * t + 1), last)), wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        start = at + 24 * min(int32(8 * step + 2 * c + (t >> 1)), last)
        raw[o] = ptx.ldg32_if(start, 0, wanted)
        raw[o + 1], raw[o + 2] = ptx.ldg64_if(start + 8 * (t & 1), 4, wanted)

    def codes(raw, head, o, c, j, t, shift):
        nibbles, fifth = uint32(0x000F000F), uint32(0x00100010)
        low, high = uint32(4 * j), uint32(4 * j + 8)
        a, b, bits = raw[o + 1], raw[o + 2], raw[o]
        bits = uint32(uint32(bits >> uint32(8 * (t & 1) + 16 * j)) & uint32(0xFF))  # bit i of value i of the lane's eight
        return (
            uint32(uint32(uint32(a >> low) & nibbles) | uint32(uint32(uint32(bits * uint32(0x40010)) & fifth) | base)),
            uint32(uint32(uint32(a >> high) & nibbles) | uint32(uint32(uint32(bits * uint32(0x20008)) & fifth) | base)),
            uint32(uint32(uint32(b >> low) & nibbles) | uint32(uint32(uint32(bits * uint32(0x4001)) & fifth) | base)),
            uint32(
                uint32(uint32(b >> high) & nibbles)
                | uint32(uint32(uint32(uint32(bits >> uint32(1)) * uint32(0x4001)) & fifth) | base)
            ),
        )

    def scales(raw, head, t, part):
        return ptx.h2f_lo(raw[head]), ptx.h2f_lo(raw[head + 1]), ptx.h2f_hi(raw[head]), ptx.h2f_hi(raw[head + 1])

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 2, 4, 3, _fragment, planes=2, raised=False, hop=32)


def _stream(ptx, function):
    int32, uint32 = ptx.i32, ptx.u32
    add = function(with_fifths(ptx))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        for i in range(3):
            raw[o + 2 * i], raw[o + 2 * i + 1] = ptx.at64(int32(at + 96 * p + 24 * t + 8 * i))

    def codes(raw, head, o, p, j, t):
        return add(raw[o + 2 + j], uint32(raw[o + 1] >> uint32(4 * j)))

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[o]), ptx.h2f_hi(raw[o])

    return head, load, codes, scales


STREAM = Stream(192, 2, 0, 6, _stream, order=NIBBLES, minimum=True)
