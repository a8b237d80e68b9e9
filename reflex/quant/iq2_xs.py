"""IQ2_XS: 256 values as 32 points of 8 from a grid of 512; signs by 7-bit index; 16 groups of 16 with a 4-bit scale.

    0    f16       scale d
    2    u16[32]   grid index in bits 0-8, sign index in bits 9-15
    66   u8[8]     scales, even ones in the low halves

value = d * (2 * scale + 1) / 8 * signed coordinate
"""

from . import fields, grids


def decode(blocks):
    """uint8 [n, 74] -> float32 [n, 256]."""
    import numpy as np

    words = fields.u16(blocks, 2, 32)
    points = np.frombuffer(grids.iq2_xs(), dtype="i1").reshape(-1, 8)[words & 511].reshape(len(blocks), 256)
    scales = fields.f16(blocks, 0) * ((2 * fields.planes(blocks, 66, 8, 1, 4) + 1).astype("f4") / 8)
    return fields.scaled(scales, fields.signed(points, np.frombuffer(grids.signs(), dtype="u1")[words >> 9]))


def unpack(memory):
    f16, u16, float32, float_of_bits = memory.f16, memory.u16, memory.float32, memory.float_of_bits
    point, signs = memory.table(grids.iq2_xs()), memory.table(grids.signs())
    scale = fields.plane(memory, 66, 1, 4)

    def element(address, index):
        word = u16(address + 2 + ((index >> 3) << 1))
        place = index & 7
        value = point(((word & 511) << 3) + place)
        if (signs(word >> 9) >> place) & 1:
            value = -value
        eighth = float_of_bits(0x3E000000)
        return f16(address) * (float32(2 * scale(address, index >> 4) + 1) * eighth) * float32(value)

    return element
