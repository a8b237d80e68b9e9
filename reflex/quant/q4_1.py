"""Q4_1: 32 values of 4 bits, a half scale and a half minimum.

    0   f16      scale d
    2   f16      minimum m
    4   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = d * quant + m
"""

from . import fields
from .lanes import Small


def decode(blocks):
    """uint8 [n, 20] -> float32 [n, 32]."""
    return fields.f16(blocks, 0) * fields.planes(blocks, 4, 16, 16, 4).astype("f4") + fields.f16(blocks, 2)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    quant = fields.plane(memory, 4, 16, 4)

    def element(address, index):
        return f16(address) * float32(quant(address, index)) + f16(address + 2)

    return element


LANES = Small(20, lambda v, blocks: v.nibbles([v.at(p, 4) for p in blocks]), minimum_at=2)
