"""IQ4_XS: 256 values from the 16 levels of IQ4_NL; 8 groups of 32 with a 6-bit scale each.

    0   f16       scale d of the scales
    2   u16       bits 4-5 of scale j in bits 2j and 2j + 1
    4   u8[4]     bits 0-3 of the scales, even ones in the low halves
    8   u8[128]   codes: 16 bytes hold 32 values, two planes of 16

value = (d * (scale - 32)) * level[code]
"""

from . import fields
from .iq4_nl import LEVELS


def decode(blocks):
    """uint8 [n, 136] -> float32 [n, 256]."""
    import numpy as np

    scales = fields.planes(blocks, 4, 4, 1, 4) | fields.planes(blocks, 2, 2, 1, 2) << 4
    levels = np.frombuffer(LEVELS, dtype="i1")[fields.planes(blocks, 8, 128, 16, 4)]
    return fields.scaled(fields.f16(blocks, 0) * (scales.astype("f4") - 32), levels)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    code, level = fields.plane(memory, 8, 16, 4), memory.table(LEVELS)
    low, high = fields.plane(memory, 4, 1, 4), fields.plane(memory, 2, 1, 2)

    def element(address, index):
        group = index >> 5
        scale = low(address, group) | (high(address, group) << 4)
        return f16(address) * float32(scale - 32) * float32(level(code(address, index)))

    return element
