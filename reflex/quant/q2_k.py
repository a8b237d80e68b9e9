"""Q2_K: 256 values of 2 bits; 16 groups of 16 with a 4-bit scale and a 4-bit minimum each.

    0    u8[16]   group j: scale in the low half, minimum in the high half
    16   u8[64]   quants: 32 bytes hold 128 values, four planes of 32
    80   f16      scale d of the scales
    82   f16      scale dmin of the minima

value = (d * scale) * quant - dmin * minimum
"""

from . import fields


def decode(blocks):
    """uint8 [n, 84] -> float32 [n, 256]."""
    scales = fields.f16(blocks, 80) * (blocks[:, :16] & 15).astype("f4")
    minima = fields.f16(blocks, 82) * (blocks[:, :16] >> 4).astype("f4")
    return fields.scaled(scales, fields.planes(blocks, 16, 64, 32, 2)) - minima.repeat(16, axis=1)


def unpack(memory):
    f16, u8, float32 = memory.f16, memory.u8, memory.float32
    quant = fields.plane(memory, 16, 32, 2)

    def element(address, index):
        both = u8(address + (index >> 4))
        scale = f16(address + 80) * float32(both & 15)
        return scale * float32(quant(address, index)) - f16(address + 82) * float32(both >> 4)

    return element
