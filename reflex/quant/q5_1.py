"""Q5_1: 32 values of 5 bits, a half scale and a half minimum.

    0   f16      scale d
    2   f16      minimum m
    4   u8[4]    bit 4 of value j in bit j, lowest bit first
    8   u8[16]   bits 0-3: value j in the low half of byte j, value j + 16 in its high half

value = d * quant + m
"""

from . import fields
from .lanes import Small


def decode(blocks):
    """uint8 [n, 24] -> float32 [n, 32]."""
    quants = fields.planes(blocks, 8, 16, 16, 4) | fields.planes(blocks, 4, 4, 1, 1) << 4
    return fields.f16(blocks, 0) * quants.astype("f4") + fields.f16(blocks, 2)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    low, high = fields.plane(memory, 8, 16, 4), fields.plane(memory, 4, 1, 1)

    def element(address, index):
        return f16(address) * float32(low(address, index) | (high(address, index) << 4)) + f16(address + 2)

    return element


def _codes(v, blocks):
    fifth = v.bit_bytes([v.at(p, 4) for p in blocks], 16)
    return v.b.or_(v.nibbles([v.at(p, 8) for p in blocks]), fifth)


LANES = Small(24, _codes, minimum_at=2)
