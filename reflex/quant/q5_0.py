"""Q5_0: 32 values of 5 bits, one half scale.

    0   f16      scale d
    2   u8[4]    bit 4 of value j in bit j, lowest bit first
    6   u8[16]   bits 0-3: value j in the low half of byte j, value j + 16 in its high half

value = d * (quant - 16)
"""

from . import fields
from .fragment import Fragment
from .lanes import Small
from .stream import NIBBLES, Stream, unaligned


def decode(blocks):
    """uint8 [n, 22] -> float32 [n, 32]."""
    quants = fields.planes(blocks, 6, 16, 16, 4) | fields.planes(blocks, 2, 4, 1, 1) << 4
    return fields.f16(blocks, 0) * (quants.astype("f4") - 16)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    low, high = fields.plane(memory, 6, 16, 4), fields.plane(memory, 2, 1, 1)

    def element(address, index):
        return f16(address) * float32((low(address, index) | (high(address, index) << 4)) - 16)

    return element


def _codes(v, blocks):
    fifth = v.bit_bytes([v.at(p, 2) for p in blocks], 16)
    return v.b.or_(v.nibbles([v.at(p, 6) for p in blocks]), fifth)


LANES = Small(22, _codes, bias=16)


def _fragment(ptx, base, function):
    """Lanes 0, 1 take even blocks and lanes 2, 3 odd ones: a lane's eight bytes are eight values of each half."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(row, step, t):
        return row + 2

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - 2, int32(22 * min(int32(8 * step + 2 * t), last)), wanted)
        raw[o + 1] = ptx.ldg16_if(at - 2, int32(22 * min(int32(8 * step + 2 * t + 1), last)), wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        start = (at + 22 * min(int32(8 * step + 2 * c + (t >> 1)), last)) & -4
        raw[o] = ptx.ldg32_if(start, 0, wanted)
        raw[o + 1] = ptx.ldg32_if(start, 4, wanted)
        for i in range(3):
            raw[o + 2 + i] = ptx.ldg32_if(start + 8 * (t & 1), 4 + 4 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        nibbles, fifth = uint32(0x000F000F), uint32(0x00100010)
        low, high = uint32(4 * j), uint32(4 * j + 8)
        shift = uint32(shift ^ uint32(16 - ((t >> 1) << 4)))  # in even blocks it all lies two bytes further
        a, b = ptx.shf_r(raw[o + 2], raw[o + 3], shift), ptx.shf_r(raw[o + 3], raw[o + 4], shift)
        bits = ptx.shf_r(raw[o], raw[o + 1], shift)
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
        s0, s1 = ptx.h2f_lo(raw[head]), ptx.h2f_lo(raw[head + 1])
        return s0, s1, float32(s0 * float32(-16)), float32(s1 * float32(-16))

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 2, 4, 5, _fragment, planes=2, raised=False, offset=16, hop=32)


def with_fifths(ptx):
    """Function (four bytes of nibbles, word with four bits at 0 and four at 16) -> codes of the low halves and of the high ones."""
    uint32 = ptx.u32

    def add(nibbles, bits):
        half, fifth, spread = uint32(0x0F0F0F0F), uint32(0x10101010), uint32(0x02040810)
        low, high = uint32(uint32(bits & uint32(15)) * spread), uint32(uint32(uint32(bits >> uint32(16)) & uint32(15)) * spread)
        return (
            uint32(uint32(nibbles & half) | uint32(low & fifth)),
            uint32(uint32(uint32(nibbles >> uint32(4)) & half) | uint32(high & fifth)),
        )

    return add


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 5))
    add = function(with_fifths(ptx))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        start = int32(at + 88 * p + 22 * t)
        raw[o] = ptx.at16(start)
        read(int32(start + 2), raw, o + 1)

    def codes(raw, head, o, p, j, t):
        return add(word(raw, o + 1, j + 1, 0), uint32(word(raw, o + 1, 0, 0) >> uint32(4 * j)))

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[o]), float32(0)

    return head, load, codes, scales


STREAM = Stream(176, 2, 0, 8, _stream, order=NIBBLES, offset=16)
