"""IQ3_XXS: 256 values as 64 points of 4 from a grid of 256; signs by 7-bit index; 8 groups of 32 with a 4-bit scale.

    0    f16      scale d
    2    u8[64]   grid indices
    66   u32[8]   group j: four 7-bit sign indices from bit 0 up, one for 8 values; scale in bits 28-31

value = d * (2 * scale + 1) / 4 * signed coordinate
"""

from . import fields, grids


def decode(blocks):
    """uint8 [n, 98] -> float32 [n, 256]."""
    import numpy as np

    n = len(blocks)
    words = fields.u32(blocks, 66, 8)
    negative = words[:, :, None] >> np.array([0, 7, 14, 21], dtype="u4") & 127
    points = np.frombuffer(grids.iq3_xxs(), dtype="i1").reshape(-1, 4)[blocks[:, 2:66]].reshape(n, 256)
    scales = fields.f16(blocks, 0) * ((2 * (words >> 28) + 1).astype("f4") / 4)
    return fields.scaled(scales, fields.signed(points, np.frombuffer(grids.signs(), dtype="u1")[negative.reshape(n, 32)]))


def unpack(memory):
    f16, u8, u32, float32, float_of_bits = memory.f16, memory.u8, memory.u32, memory.float32, memory.float_of_bits
    point, signs = memory.table(grids.iq3_xxs()), memory.table(grids.signs())

    def element(address, index):
        word = u32(address + 66 + ((index >> 5) << 2))
        value = point((u8(address + 2 + (index >> 2)) << 2) + (index & 3))
        if (signs((word >> (7 * ((index >> 3) & 3))) & 127) >> (index & 7)) & 1:
            value = -value
        quarter = float_of_bits(0x3E800000)
        return f16(address) * (float32(2 * (word >> 28) + 1) * quarter) * float32(value)

    return element
