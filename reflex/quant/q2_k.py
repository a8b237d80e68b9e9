"""Q2_K: 256 values of 2 bits; 16 groups of 16 with a 4-bit scale and a 4-bit minimum each.

    0    u8[16]   group j: scale in the low half, minimum in the high half
    16   u8[64]   quants: 32 bytes hold 128 values, four planes of 32
    80   f16      scale d of the scales
    82   f16      scale dmin of the minima

value = (d * scale) * quant - dmin * minimum
"""

from . import fields
from .fragment import Fragment
from .lanes import Group, Large, crumbs
from .stream import Stream


def decode(blocks):
    """uint8 [n, 84] -> float32 [n, 256]."""
    scales = fields.f16(blocks, 80) * (blocks[:, :16] & 15).astype("f4")
    minima = fields.f16(blocks, 82) * (blocks[:, :16] >> 4).astype("f4")
    return fields.scaled(scales, fields.planes(blocks, 16, 64, 32, 2)) - minima.repeat(16, axis=1)


def unpack(memory):
    f16, u8, float32 = memory.f16, memory.u8, memory.float32
    quant = fields.plane(memory, 16, 32, 2)

    def element(address, index):
        both = u8(address + (index >> 4))
        scale = f16(address + 80) * float32(both & 15)
        return scale * float32(quant(address, index)) - f16(address + 82) * float32(both >> 4)

    return element


def _group(v, p):
    both = v.load(p, v.bytes16)
    scales = v.b.fmul(v.floats(v.low_nibbles(both)), v.splat(v.half(v.at(p, 80)), 16))
    minimums = v.b.fmul(v.floats(v.high_nibbles(both)), v.splat(v.b.fneg(v.half(v.at(p, 82))), 16))
    return Group(scales, minimums, crumbs(v, v.at(p, 16)))


LANES = Large(84, _group)


def _fragment(ptx, base, function):
    """A part is half a block: the same 32 bytes hold four planes."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(row, step, t):
        return row + (84 * step + 8 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o] = ptx.ldg16_if(at - 6 * t, 0, wanted)
        raw[o + 1] = ptx.ldg16_if(at - 6 * t, 8, wanted)
        raw[o + 2] = ptx.ldg32_if(at - 8 * t, 80, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        raw[o] = ptx.ldg32_if(at, 16 + 32 * c, wanted)
        raw[o + 1] = ptx.ldg32_if(at, 20 + 32 * c, wanted)

    def codes(raw, head, o, c, j, t, shift):
        low, even, odd = uint32(0x00030003), uint32(2 * j), uint32(2 * j + 8)
        return (
            uint32(uint32(uint32(raw[o] >> even) & low) | base),
            uint32(uint32(uint32(raw[o] >> odd) & low) | base),
            uint32(uint32(uint32(raw[o + 1] >> even) & low) | base),
            uint32(uint32(uint32(raw[o + 1] >> odd) & low) | base),
        )

    def scales(raw, head, t, part):
        pair, both = raw[head + part], raw[head + 2]
        d, dmin = ptx.h2f_lo(both), float32(-ptx.h2f_hi(both))
        return (
            float32(d * float32(int32(pair & uint32(15)))),
            float32(d * float32(int32(uint32(pair >> uint32(8)) & uint32(15)))),
            float32(dmin * float32(int32(uint32(pair >> uint32(4)) & uint32(15)))),
            float32(dmin * float32(int32(pair >> uint32(12)))),
        )

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 3, 2, 2, _fragment, planes=4, parts=2, tiled=False)


def _stream(ptx, function):
    """A lane has a plane of two bits of 32 bytes and leaves them in place: its codes are 4**t times as large."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def head(at, t, raw, o):
        raw[o] = ptx.at32(int32(at + 80))

    def load(at, p, t, raw, o):
        raw[o] = ptx.at16(int32(at + 8 * p + 2 * t))
        for k in range(8):
            raw[o + 1 + k] = ptx.at32(int32(at + 16 + 32 * p + 4 * k))

    def codes(raw, head, o, p, j, t):
        plane = uint32(uint32(0x03030303) << uint32(2 * t))
        return uint32(raw[o + 1 + 2 * j] & plane), uint32(raw[o + 2 + 2 * j] & plane)

    def scales(raw, head, o, p, t):
        raised = ptx.bits2f(uint32(0x3F800000 - (t << 24)))  # 4**-t
        d, dmin, pair = float32(ptx.h2f_lo(raw[head]) * raised), float32(-ptx.h2f_hi(raw[head])), raw[o]
        return (
            float32(d * float32(int32(pair & uint32(15)))),
            float32(d * float32(int32(uint32(pair >> uint32(8)) & uint32(15)))),
            float32(dmin * float32(int32(uint32(pair >> uint32(4)) & uint32(15)))),
            float32(dmin * float32(int32(pair >> uint32(12)))),
        )

    return head, load, codes, scales


STREAM = Stream(84, 2, 1, 9, _stream, halves=True, minimum=True)
