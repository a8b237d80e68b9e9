"""IQ3_S: 256 values as 64 points of 4 from a grid of 512; a sign bit each; 8 groups of 32 with a 4-bit scale.

    0     f16      scale d
    2     u8[64]   bits 0-7 of the grid indices
    66    u8[8]    bit 8 of the grid indices, lowest bit first
    74    u8[32]   sign bits, lowest bit first
    106   u8[4]    scales, even ones in the low halves

value = d * (2 * scale + 1) * signed coordinate
"""

from . import fields, grids


def decode(blocks):
    """uint8 [n, 110] -> float32 [n, 256]."""
    import numpy as np

    indices = blocks[:, 2:66] | fields.planes(blocks, 66, 8, 1, 1).astype("u2") << 8
    points = np.frombuffer(grids.iq3_s(), dtype="i1").reshape(-1, 4)[indices].reshape(len(blocks), 256)
    scales = fields.f16(blocks, 0) * (2 * fields.planes(blocks, 106, 4, 1, 4) + 1).astype("f4")
    return fields.scaled(scales, fields.signed(points, blocks[:, 74:106]))


def unpack(memory):
    f16, u8, float32 = memory.f16, memory.u8, memory.float32
    point = memory.table(grids.iq3_s())
    high, sign, scale = fields.plane(memory, 66, 1, 1), fields.plane(memory, 74, 1, 1), fields.plane(memory, 106, 1, 4)

    def element(address, index):
        lane = index >> 2
        number = u8(address + 2 + lane) | (high(address, lane) << 8)
        value = point((number << 2) + (index & 3))
        if sign(address, index):
            value = -value
        return f16(address) * float32(2 * scale(address, index >> 5) + 1) * float32(value)

    return element
