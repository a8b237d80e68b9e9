"""Q6_K: 256 values of 6 bits; 16 groups of 16 with a signed 8-bit scale each.

    0     u8[128]   bits 0-3: 64 bytes hold 128 values, two planes of 64
    128   u8[64]    bits 4-5: 32 bytes hold 128 values, four planes of 32
    192   i8[16]    scales
    208   f16       scale d of the scales

value = (d * scale) * (quant - 32)
"""

from . import fields
from .lanes import Group, Large


def decode(blocks):
    """uint8 [n, 210] -> float32 [n, 256]."""
    quants = fields.planes(blocks, 0, 128, 64, 4) | fields.planes(blocks, 128, 64, 32, 2) << 4
    return fields.scaled(fields.f16(blocks, 208) * fields.i8(blocks, 192, 16).astype("f4"), quants.astype("i1") - 32)


def unpack(memory):
    f16, i8, float32 = memory.f16, memory.i8, memory.float32
    low, high = fields.plane(memory, 0, 64, 4), fields.plane(memory, 128, 32, 2)

    def element(address, index):
        scale = f16(address + 208) * float32(i8(address + 192 + (index >> 4)))
        return scale * float32((low(address, index) | (high(address, index) << 4)) - 32)

    return element


def _group(v, p):
    step = v.splat(v.half(v.at(p, 208)), 16)
    scales = v.b.fmul(v.signed_floats(v.load(v.at(p, 192), v.bytes16)), step)
    high = [v.load(v.at(p, 128 + 32 * half), v.bytes32) for half in (0, 1)]

    def codes(i, count):
        half, part = divmod(i, 4)
        quants = v.load(v.at(p, 64 * half + 32 * (part % 2)), v.bytes32 if count == 1 else v.bytes64)
        four = v.high_nibbles(quants) if part >= 2 else v.low_nibbles(quants)
        return v.b.or_(four, v.bit_planes(high[half], [2 * (part + k) for k in range(count)], 2, 4))

    return Group(scales, v.b.fmul(scales, v.const(scales.type, -32.0)), codes)


LANES = Large(210, _group)
