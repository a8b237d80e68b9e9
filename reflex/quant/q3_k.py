"""Q3_K: 256 values of 3 bits; 16 groups of 16 with a 6-bit scale each.

    0     u8[32]   bit 2 of the values, inverted sense: eight planes of 32
    32    u8[64]   bits 0-1: 32 bytes hold 128 values, four planes of 32
    96    u8[8]    bits 0-3 of the scales, two planes of 8
    104   u8[4]    bits 4-5 of the scales, four planes of 4
    108   f16      scale d of the scales

value = (d * (scale - 32)) * (low + 4 * bit - 4)
"""

from . import fields
from .fragment import Fragment
from .lanes import Group, Large, crumbs
from .stream import Stream, unaligned


def decode(blocks):
    """uint8 [n, 110] -> float32 [n, 256]."""
    codes = fields.planes(blocks, 96, 8, 8, 4) | fields.planes(blocks, 104, 4, 4, 2) << 4
    quants = fields.planes(blocks, 32, 64, 32, 2) | fields.planes(blocks, 0, 32, 32, 1) << 2
    return fields.scaled(fields.f16(blocks, 108) * (codes.astype("f4") - 32), quants.astype("i1") - 4)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    low, high = fields.plane(memory, 32, 32, 2), fields.plane(memory, 0, 32, 1)
    scale_low, scale_high = fields.plane(memory, 96, 8, 4), fields.plane(memory, 104, 4, 2)

    def element(address, index):
        group = index >> 4
        code = scale_low(address, group) | (scale_high(address, group) << 4)
        quant = low(address, index) | (high(address, index) << 2)
        return f16(address + 108) * float32(code - 32) * float32(quant - 4)

    return element


def _scales(v, p):
    """The sixteen scales, less 32: nibbles in two planes, two bits on top in four."""
    low = v.load(v.at(p, 96), v.bytes8)
    low = v.join(v.low_nibbles(low), v.high_nibbles(low))
    high = v.b.shl(v.fields(v.load(v.at(p, 104), v.int32), [0, 2, 4, 6], 32), v.const(v.ints4, 4))
    high = v.b.and_(v.b.bitcast(high, v.bytes16), v.const(v.bytes16, 0x30))
    return v.signed_floats(v.b.sub(v.b.or_(low, high), v.const(v.bytes16, 32)))


def _group(v, p):
    scales = v.b.fmul(_scales(v, p), v.splat(v.half(v.at(p, 108)), 16))
    low, third = crumbs(v, v.at(p, 32)), v.load(p, v.bytes32)

    def codes(i, count):
        return v.b.or_(low(i, count), v.bit_planes(third, [i + k for k in range(count)], 1, 2))

    return Group(scales, None, codes, bias=4)


LANES = Large(110, _group)


def _fragment(ptx, base, function):
    """A part is half a block: 32 bytes of low bits hold four planes; the other bits lie in one run for both parts."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(row, step, t):
        return row + (110 * step + 8 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(at & -4, 4 * i, wanted)
        raw[o + 3] = ptx.ldg16_if(at - 6 * t, 96, wanted)
        raw[o + 4] = ptx.ldg16_if(at - int32(8 * t - 2 * (t & 1)), 104, wanted)
        raw[o + 5] = ptx.ldg16_if(at - 8 * t, 108, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(at & -4, 32 + 32 * c + 4 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        low, high, even, odd, plane = uint32(0x00030003), uint32(0x00040004), uint32(2 * j), uint32(2 * j + 8), uint32(4 * c + j)
        a, b = ptx.shf_r(raw[o], raw[o + 1], shift), ptx.shf_r(raw[o + 1], raw[o + 2], shift)
        x, y = ptx.shf_r(raw[head], raw[head + 1], shift), ptx.shf_r(raw[head + 1], raw[head + 2], shift)
        x_even, x_odd = uint32(x << uint32(2)), uint32(x >> uint32(6))  # the bit of plane 0 at bit 2
        y_even, y_odd = uint32(y << uint32(2)), uint32(y >> uint32(6))
        return (
            uint32(uint32(uint32(a >> even) & low) | uint32(uint32(uint32(x_even >> plane) & high) | base)),
            uint32(uint32(uint32(a >> odd) & low) | uint32(uint32(uint32(x_odd >> plane) & high) | base)),
            uint32(uint32(uint32(b >> even) & low) | uint32(uint32(uint32(y_even >> plane) & high) | base)),
            uint32(uint32(uint32(b >> odd) & low) | uint32(uint32(uint32(y_odd >> plane) & high) | base)),
        )

    def scales(raw, head, t, part):
        low = uint32(raw[head + 3] >> uint32(4 * part))
        high = uint32(raw[head + 4] >> uint32(4 * part + 2 * (t >> 1)))
        code = uint32(uint32(low & uint32(0x0F0F)) | uint32(uint32(high & uint32(0x0303)) << uint32(4)))
        d = ptx.h2f_lo(raw[head + 5])
        s0 = float32(d * float32(int32(int32(code & uint32(255)) - 32)))
        s1 = float32(d * float32(int32(int32(code >> uint32(8)) - 32)))
        return s0, s1, float32(s0 * float32(-4)), float32(s1 * float32(-4))

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 6, 2, 3, _fragment, planes=4, parts=2, offset=4, tiled=False, heavy=True)


def _stream(ptx, function):
    """A lane has a plane of two bits of 32 bytes, and one of one bit."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 8))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(int32(at + 108))
        read(at, raw, o + 1)

    def load(at, p, t, raw, o):
        raw[o] = uint32(ptx.at16(int32(at + 96 + 2 * t)) >> uint32(4 * p))
        raw[o + 1] = uint32(ptx.at16(int32(at + 104 + 2 * (t & 1))) >> uint32(4 * p + 2 * (t >> 1)))
        read(int32(at + 32 + 32 * p), raw, o + 2)

    def three(raw, head, o, p, k, t):
        low = uint32(word(raw, o + 2, k, uint32(2 * t)) & uint32(0x03030303))
        high = uint32(word(raw, head + 1, k, uint32(4 * p + t)) & uint32(0x01010101))
        return uint32(uint32(high * uint32(4)) + low)

    three = function(three)

    def codes(raw, head, o, p, j, t):
        return three(raw, head, o, p, 2 * j, t), three(raw, head, o, p, 2 * j + 1, t)

    def scales(raw, head, o, p, t):
        d = ptx.h2f_lo(raw[head])
        code = uint32(uint32(raw[o] & uint32(0x0F0F)) | uint32(uint32(raw[o + 1] & uint32(0x0303)) << uint32(4)))
        s0 = float32(d * float32(int32(int32(code & uint32(255)) - 32)))
        s1 = float32(d * float32(int32(int32(code >> uint32(8)) - 32)))
        return s0, s1, float32(0), float32(0)

    return head, load, codes, scales


STREAM = Stream(110, 2, 11, 12, _stream, halves=True, offset=4)
