"""Q4_0: 32 values of 4 bits, one half scale.

    0   f16      scale d
    2   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = d * (quant - 8)
"""

from . import fields
from .lanes import Small


def decode(blocks):
    """uint8 [n, 18] -> float32 [n, 32]."""
    return fields.f16(blocks, 0) * (fields.planes(blocks, 2, 16, 16, 4).astype("f4") - 8)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    quant = fields.plane(memory, 2, 16, 4)

    def element(address, index):
        return f16(address) * float32(quant(address, index) - 8)

    return element


LANES = Small(18, lambda v, blocks: v.nibbles([v.at(p, 2) for p in blocks]), bias=8)
