"""Q8_K: 256 signed bytes, one single scale and the sums that dot products with minima need.

    0     f32       scale d
    4     i8[256]   quants
    260   i16[16]   sums of 16 quants each; no part of the values

value = d * quant
"""

from . import fields


def decode(blocks):
    """uint8 [n, 292] -> float32 [n, 256]."""
    return fields.f32(blocks, 0) * fields.i8(blocks, 4, 256).astype("f4")


def unpack(memory):
    f32, i8, float32 = memory.f32, memory.i8, memory.float32

    def element(address, index):
        return f32(address) * float32(i8(address + 4 + index))

    return element
