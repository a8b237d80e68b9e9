"""Q1_0: 128 signs and one half scale.

    0   f16      scale d
    2   u8[16]   one bit per value, lowest bit first

value = d where the bit is set, otherwise -d
"""

from . import fields


def decode(blocks):
    """uint8 [n, 18] -> float32 [n, 128]."""
    return fields.f16(blocks, 0) * (2 * fields.planes(blocks, 2, 16, 1, 1).astype("f4") - 1)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    bit = fields.plane(memory, 2, 1, 1)

    def element(address, index):
        return f16(address) * float32(2 * bit(address, index) - 1)

    return element
