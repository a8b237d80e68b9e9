"""Q5_K: 256 values of 5 bits; 8 groups of 32 with a 6-bit scale and a 6-bit minimum each.

    0    f16       scale d of the scales
    2    f16       scale dmin of the minima
    4    u8[12]    scales and minima, see sixbit.py
    16   u8[32]    bit 4 of the values: eight planes of 32
    48   u8[128]   bits 0-3: 32 bytes hold 64 values, two planes of 32

value = (d * scale) * quant - dmin * minimum
"""

from . import fields, sixbit
from .fragment import Fragment
from .lanes import Group, Large, scales_and_minimums
from .stream import Stream


def decode(blocks):
    """uint8 [n, 176] -> float32 [n, 256]."""
    scales, minima = sixbit.decode(blocks, 4)
    quants = fields.planes(blocks, 48, 128, 32, 4) | fields.planes(blocks, 16, 32, 32, 1) << 4
    values = fields.scaled(fields.f16(blocks, 0) * scales.astype("f4"), quants)
    return values - (fields.f16(blocks, 2) * minima.astype("f4")).repeat(32, axis=1)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    low, high = fields.plane(memory, 48, 32, 4), fields.plane(memory, 16, 32, 1)
    scale, minimum = sixbit.unpack(memory, 4)

    def element(address, index):
        group = index >> 5
        step = f16(address) * float32(scale(address, group))
        quant = low(address, index) | (high(address, index) << 4)
        return step * float32(quant) - f16(address + 2) * float32(minimum(address, group))

    return element


def _group(v, p):
    scales, minimums = scales_and_minimums(v, v.at(p, 4))
    step, dmin = v.splat(v.half(p)), v.splat(v.b.fneg(v.half(v.at(p, 2))))
    fifth = v.load(v.at(p, 16), v.bytes32)

    def codes(i, count):
        four = v.nibble_planes(v.load(v.at(p, 48 + 32 * (i // 2)), v.bytes32), i % 2, count)
        return v.b.or_(four, v.bit_planes(fifth, [i + k for k in range(count)], 1, 4))

    return Group(v.twice(v.b.fmul(scales, step)), v.twice(v.b.fmul(minimums, dmin)), codes)


LANES = Large(176, _group)


def _fragment(ptx, base, function):
    uint32 = ptx.u32
    scales_of = function(sixbit.fragment(ptx))

    def place(row, step, t):
        return row + (176 * step + 8 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.ldg128_if(at - 8 * t, 0, wanted)
        raw[o + 4], raw[o + 5] = ptx.ldg64_if(at, 16, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        raw[o], raw[o + 1] = ptx.ldg64_if(at, 48 + 32 * c, wanted)

    def codes(raw, head, o, c, j, t, shift):
        nibbles, fifth = uint32(0x000F000F << 4 * j), uint32(0x00010001 << (2 * c + j))
        up = uint32((0x3C00 + 1024 * (4 + 3 * j - 2 * c)) * 0x10001)  # what brings the fifth bit above the nibble, as halves
        a, b, x, y = raw[o], raw[o + 1], raw[head + 4], raw[head + 5]
        return (
            ptx.fma2(uint32(x & fifth), up, uint32(uint32(a & nibbles) | base)),
            ptx.fma2(uint32(uint32(x >> uint32(8)) & fifth), up, uint32(uint32(uint32(a >> uint32(8)) & nibbles) | base)),
            ptx.fma2(uint32(y & fifth), up, uint32(uint32(b & nibbles) | base)),
            ptx.fma2(uint32(uint32(y >> uint32(8)) & fifth), up, uint32(uint32(uint32(b >> uint32(8)) & nibbles) | base)),
        )

    def scales(raw, head, t, part):
        return scales_of(raw[head], raw[head + 1], raw[head + 2], raw[head + 3], t)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 6, 4, 2, _fragment, planes=2)


def _stream(ptx, function):
    """A lane has the low or the high halves of 32 bytes, and a plane of one bit."""
    int32, uint32 = ptx.i32, ptx.u32
    scale_of = function(sixbit.stream(ptx))

    def head(at, t, raw, o):
        for i in range(3):
            k = o + 4 * i
            raw[k], raw[k + 1], raw[k + 2], raw[k + 3] = ptx.at128(int32(at + 16 * i))

    def load(at, p, t, raw, o):
        start = int32(at + 48 + 64 * p + 32 * (t >> 1))
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.at128(start)
        raw[o + 4], raw[o + 5], raw[o + 6], raw[o + 7] = ptx.at128(int32(start + 16))

    def five(nibbles, bits, p, t):
        nibbles = uint32(uint32(nibbles >> uint32(4 * (t & 1))) & uint32(0x0F0F0F0F))
        return uint32(uint32(uint32(uint32(bits >> uint32(4 * p + t)) & uint32(0x01010101)) * uint32(16)) + nibbles)

    five = function(five)

    def codes(raw, head, o, p, j, t):
        k = head + 4 + 2 * j
        return five(raw[o + 2 * j], raw[k], p, t), five(raw[o + 2 * j + 1], raw[k + 1], p, t)

    def scales(raw, head, o, p, t):
        return scale_of(raw[head], raw[head + 1], raw[head + 2], raw[head + 3], p, t)

    return head, load, codes, scales


STREAM = Stream(176, 2, 12, 8, _stream, minimum=True)
