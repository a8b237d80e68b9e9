"""IQ2_XXS: 256 values as 32 points of 8 from a grid of 256; signs by 7-bit index; 8 groups of 32 with a 4-bit scale.

    0   f16            scale d
    2   8 times:
        0   u8[4]      grid indices
        4   u32        four 7-bit sign indices from bit 0 up; scale in bits 28-31

value = d * (2 * scale + 1) / 8 * signed coordinate
"""

from . import fields, grids


def decode(blocks):
    """uint8 [n, 66] -> float32 [n, 256]."""
    import numpy as np

    n = len(blocks)
    indices = blocks[:, 2:].reshape(n, 8, 8)[:, :, :4].reshape(n, 32)
    words = fields.u32(blocks, 2, 16)[:, 1::2]  # [n, 8]
    negative = words[:, :, None] >> np.array([0, 7, 14, 21], dtype="u4") & 127
    points = np.frombuffer(grids.iq2_xxs(), dtype="i1").reshape(-1, 8)[indices].reshape(n, 256)
    scales = fields.f16(blocks, 0) * ((2 * (words >> 28) + 1).astype("f4") / 8)
    return fields.scaled(scales, fields.signed(points, np.frombuffer(grids.signs(), dtype="u1")[negative.reshape(n, 32)]))


def unpack(memory):
    f16, u8, u32, float32, float_of_bits = memory.f16, memory.u8, memory.u32, memory.float32, memory.float_of_bits
    point, signs = memory.table(grids.iq2_xxs()), memory.table(grids.signs())

    def element(address, index):
        group = address + 2 + ((index >> 5) << 3)
        lane, place = (index >> 3) & 3, index & 7
        word = u32(group + 4)
        value = point((u8(group + lane) << 3) + place)
        if (signs((word >> (7 * lane)) & 127) >> place) & 1:
            value = -value
        eighth = float_of_bits(0x3E000000)
        return f16(address) * (float32(2 * (word >> 28) + 1) * eighth) * float32(value)

    return element
