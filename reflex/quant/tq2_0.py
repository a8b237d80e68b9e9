"""TQ2_0: 256 values of -1, 0, 1 (or 2) in 2 bits, one half scale.

    0    u8[64]   quants: 32 bytes hold 128 values, four planes of 32
    64   f16      scale d

value = d * (quant - 1)
"""

from . import fields


def decode(blocks):
    """uint8 [n, 66] -> float32 [n, 256]."""
    return fields.f16(blocks, 64) * (fields.planes(blocks, 0, 64, 32, 2).astype("f4") - 1)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    quant = fields.plane(memory, 0, 32, 2)

    def element(address, index):
        return f16(address + 64) * float32(quant(address, index) - 1)

    return element
