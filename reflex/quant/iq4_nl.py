"""IQ4_NL: 32 values from 16 unevenly spaced levels, one half scale.

    0   f16      scale d
    2   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = d * level[code]
"""

from . import fields

LEVELS = bytes(n & 255 for n in (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))


def decode(blocks):
    """uint8 [n, 18] -> float32 [n, 32]."""
    import numpy as np

    return fields.f16(blocks, 0) * np.frombuffer(LEVELS, dtype="i1")[fields.planes(blocks, 2, 16, 16, 4)].astype("f4")


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    code, level = fields.plane(memory, 2, 16, 4), memory.table(LEVELS)

    def element(address, index):
        return f16(address) * float32(level(code(address, index)))

    return element
