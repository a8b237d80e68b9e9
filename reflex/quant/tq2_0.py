"""TQ2_0: 256 values of -1, 0, 1 (or 2) in 2 bits, one half scale.

    0    u8[64]   quants: 32 bytes hold 128 values, four planes of 32
    64   f16      scale d

value = d * (quant - 1)
"""

from . import fields
from .fragment import Fragment
from .lanes import Group, Large, crumbs
from .stream import Stream, unaligned


def decode(blocks):
    """uint8 [n, 66] -> float32 [n, 256]."""
    return fields.f16(blocks, 64) * (fields.planes(blocks, 0, 64, 32, 2).astype("f4") - 1)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    quant = fields.plane(memory, 0, 32, 2)

    def element(address, index):
        return f16(address + 64) * float32(quant(address, index) - 1)

    return element


def _group(v, p):
    scales = v.half_splat(v.at(p, 64), 16)
    return Group(scales, v.b.fneg(scales), crumbs(v, p))


LANES = Large(66, _group)


def _fragment(ptx, base, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(row, step, t):
        return row + (66 * step + 8 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg32_if((at - 8 * t) & -4, 64, wanted)  # the scale, or behind the last two bytes of codes
        for i in range(2):
            raw[o + 1 + i] = ptx.ldg32_if(at & -4, 4 * i, wanted)
            raw[o + 3 + i] = ptx.ldg32_if(at & -4, 32 + 4 * i, wanted)
        raw[o + 5] = uint32(uint32(int32(at) & 2) << uint32(3))

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        pass

    def codes(raw, head, o, c, j, t, shift):
        low, even, odd, k = uint32(0x00030003), uint32(2 * j), uint32(2 * j + 8), head + 1 + 2 * c
        give, end = raw[k], raw[head]  # the word behind a lane's two is the next lane's first, behind lane 3's that of what follows
        if c == 0 and t == 0:
            give = raw[head + 3]
        behind = ptx.shfl_four(give, int32(t + 1))
        if c == 1 and t == 3:
            behind = end
        a, b = ptx.shf_r(raw[k], raw[k + 1], raw[head + 5]), ptx.shf_r(raw[k + 1], behind, raw[head + 5])
        return (
            uint32(uint32(uint32(a >> even) & low) | base),
            uint32(uint32(uint32(a >> odd) & low) | base),
            uint32(uint32(uint32(b >> even) & low) | base),
            uint32(uint32(uint32(b >> odd) & low) | base),
        )

    def scales(raw, head, t, part):
        d = ptx.h2f_lo(uint32(raw[head] >> raw[head + 5]))
        return d, d, float32(-d), float32(-d)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 6, 2, 0, _fragment, planes=4, offset=1, tiled=False)


def _stream(ptx, function):
    """A lane has a plane of two bits of 32 bytes."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 8))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(int32(at + 64))

    def load(at, p, t, raw, o):
        read(int32(at + 32 * p), raw, o)

    def codes(raw, head, o, p, j, t):
        plane, low = uint32(2 * t), uint32(0x03030303)
        return uint32(word(raw, o, 2 * j, plane) & low), uint32(word(raw, o, 2 * j + 1, plane) & low)

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[head]), float32(0)

    return head, load, codes, scales


STREAM = Stream(66, 2, 1, 10, _stream, offset=1)
