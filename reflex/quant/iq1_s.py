"""IQ1_S: 256 values as 32 points of 8 from a ternary grid of 2048, shifted; 8 groups of 32 with a 3-bit scale.

    0    f16       scale d
    2    u8[32]    bits 0-7 of the grid indices
    34   u16[8]    group j: bits 8-10 of its four grid indices from bit 0 up; scale in bits 12-14; bit 15: shift down

value = d * (2 * scale + 1) * (coordinate + 1/8, or - 1/8)
"""

from . import fields, grids


def decode(blocks):
    """uint8 [n, 50] -> float32 [n, 256]."""
    import numpy as np

    n = len(blocks)
    words = fields.u16(blocks, 34, 8)
    high = words[:, :, None] >> np.array([0, 3, 6, 9], dtype="u2") & 7
    indices = blocks[:, 2:34] | high.reshape(n, 32) << 8
    points = np.frombuffer(grids.iq1_s(), dtype="i1").reshape(-1, 8)[indices].reshape(n, 256)
    shifts = np.where(words >> 15, np.float32(-0.125), np.float32(0.125))
    scales = fields.f16(blocks, 0) * (2 * (words >> 12 & 7) + 1).astype("f4")
    return fields.scaled(scales, points + shifts.repeat(32, axis=1))


def unpack(memory):
    f16, u8, u16, float32, float_of_bits = memory.f16, memory.u8, memory.u16, memory.float32, memory.float_of_bits
    point = memory.table(grids.iq1_s())

    def element(address, index):
        lane = index >> 3
        word = u16(address + 34 + ((lane >> 2) << 1))
        number = u8(address + 2 + lane) | (((word >> (3 * (lane & 3))) & 7) << 8)
        eighths = 8 * point((number << 3) + (index & 7)) + 1 - 2 * (word >> 15)
        scale = f16(address) * float32(2 * ((word >> 12) & 7) + 1)
        return scale * (float32(eighths) * float_of_bits(0x3E000000))

    return element
