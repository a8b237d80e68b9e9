"""Q3_K: 256 values of 3 bits; 16 groups of 16 with a 6-bit scale each.

    0     u8[32]   bit 2 of the values, inverted sense: eight planes of 32
    32    u8[64]   bits 0-1: 32 bytes hold 128 values, four planes of 32
    96    u8[8]    bits 0-3 of the scales, two planes of 8
    104   u8[4]    bits 4-5 of the scales, four planes of 4
    108   f16      scale d of the scales

value = (d * (scale - 32)) * (low + 4 * bit - 4)
"""

from . import fields


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
