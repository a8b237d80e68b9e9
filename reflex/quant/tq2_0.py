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
    """A lane has the four planes of eight bytes, and leaves them in place."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 2))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(int32(at + 64))

    def load(at, p, t, raw, o):
        read(int32(at + 32 * p + 8 * t), raw, o)

    def codes(raw, head, o, p, i, t):
        first, second, plane, above = (
            word(raw, o, 0, 0),
            word(raw, o, 1, 0),
            uint32(0x03030303 << 4 * i),
            uint32(0x0C0C0C0C << 4 * i),
        )
        return uint32(first & plane), uint32(second & plane), uint32(first & above), uint32(second & above)

    def scales(raw, head, o, p, t):
        return float32(ptx.h2f_lo(raw[head]) * float32(1 / 64)), float32(0)

    return head, load, codes, scales


def _piece(k, q):
    """Of bytes 8t .. 8t + 7 of a half, words 2j and 2j + 1 have plane j."""
    return 32 * (k >> 2) + 8 * (q >> 1) + 2 * (k & 3) + (q & 1)


STREAM = Stream(66, 2, 1, 4, _stream, offset=64, powers=(0, 2, 4, 6), piece=_piece)
