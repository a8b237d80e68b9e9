"""Q8_1: 32 signed bytes, one half scale and the scaled sum that dot products with a minimum need.

    0   f16      scale d
    2   f16      d * sum of the quants; no part of the values
    4   i8[32]   quants

value = d * quant
"""

from . import fields


def decode(blocks):
    """uint8 [n, 36] -> float32 [n, 32]."""
    return fields.f16(blocks, 0) * fields.i8(blocks, 4, 32).astype("f4")


def unpack(memory):
    f16, i8, float32 = memory.f16, memory.i8, memory.float32

    def element(address, index):
        return f16(address) * float32(i8(address + 4 + index))

    return element
