"""IQ2_S: 256 values as 32 points of 8 from a grid of 1024; a sign bit each; 16 groups of 16 with a 4-bit scale.

    0    f16      scale d
    2    u8[32]   bits 0-7 of the grid indices
    34   u8[32]   sign bits, lowest bit first
    66   u8[8]    bits 8-9 of the grid indices, four to a byte from the low bits up
    74   u8[8]    scales, even ones in the low halves

value = d * (2 * scale + 1) / 8 * signed coordinate
"""

from . import fields, grids


def decode(blocks):
    """uint8 [n, 82] -> float32 [n, 256]."""
    import numpy as np

    indices = blocks[:, 2:34] | fields.planes(blocks, 66, 8, 1, 2).astype("u2") << 8
    points = np.frombuffer(grids.iq2_s(), dtype="i1").reshape(-1, 8)[indices].reshape(len(blocks), 256)
    scales = fields.f16(blocks, 0) * ((2 * fields.planes(blocks, 74, 8, 1, 4) + 1).astype("f4") / 8)
    return fields.scaled(scales, fields.signed(points, blocks[:, 34:66]))


def unpack(memory):
    f16, u8, float32, float_of_bits = memory.f16, memory.u8, memory.float32, memory.float_of_bits
    point = memory.table(grids.iq2_s())
    high, sign, scale = fields.plane(memory, 66, 1, 2), fields.plane(memory, 34, 1, 1), fields.plane(memory, 74, 1, 4)

    def element(address, index):
        lane = index >> 3
        number = u8(address + 2 + lane) | (high(address, lane) << 8)
        value = point((number << 3) + (index & 7))
        if sign(address, index):
            value = -value
        eighth = float_of_bits(0x3E000000)
        return f16(address) * (float32(2 * scale(address, index >> 4) + 1) * eighth) * float32(value)

    return element
