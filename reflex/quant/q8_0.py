"""Q8_0: 32 signed bytes, one half scale.

    0   f16      scale d
    2   i8[32]   quants

value = d * quant
"""

from . import fields
from .fragment import Fragment
from .lanes import Small
from .stream import Stream, unaligned


def decode(blocks):
    """uint8 [n, 34] -> float32 [n, 32]."""
    return fields.f16(blocks, 0) * fields.i8(blocks, 2, 32).astype("f4")


def unpack(memory):
    f16, i8, float32 = memory.f16, memory.i8, memory.float32

    def element(address, index):
        return f16(address) * float32(i8(address + 2 + index))

    return element


LANES = Small(34, lambda v, blocks: v.joined([v.load(v.at(p, 2), v.bytes32) for p in blocks]), signed=True)


def _fragment(ptx, base, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(row, step, t):
        return row + 8 * t

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at, int32(34 * min(int32(4 * step + t), last) - 8 * t), wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        start = (at + (34 * min(int32(4 * step + c), last) + 2)) & -4
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(start, 4 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        if c & 1 == 0:  # codes begin two bytes into a block of 34
            shift = uint32(shift ^ uint32(16))
        byte, flip = uint32(0x00FF00FF), uint32(0x00800080 | base)  # -128 .. 127 as 0 .. 255
        a, b = ptx.shf_r(raw[o], raw[o + 1], shift), ptx.shf_r(raw[o + 1], raw[o + 2], shift)
        return (
            uint32(uint32(a & byte) ^ flip),
            uint32(uint32(uint32(a >> uint32(8)) & byte) ^ flip),
            uint32(uint32(b & byte) ^ flip),
            uint32(uint32(uint32(b >> uint32(8)) & byte) ^ flip),
        )

    def scales(raw, head, t, part):
        d = ptx.h2f_lo(raw[head])
        m = float32(d * float32(-128))
        return d, d, m, m

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(128, 1, 4, 3, _fragment, offset=128)


def _stream(ptx, function):
    int32, float32 = ptx.i32, ptx.f32
    read, word = map(function, unaligned(ptx, 8))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        start = int32(at + 136 * p + 34 * t)
        raw[o] = ptx.at16(start)
        read(int32(start + 2), raw, o + 1)

    def codes(raw, head, o, p, j, t):
        return word(raw, o + 1, 2 * j, 0), word(raw, o + 1, 2 * j + 1, 0)

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[o]), float32(0)

    return head, load, codes, scales


STREAM = Stream(272, 1, 0, 11, _stream, signed=True)
