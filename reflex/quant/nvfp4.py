"""NVFP4: 64 values in the 4-bit float E2M1; 4 groups of 16 with an unsigned E4M3 scale each.

    0   u8[4]    scales; bit 7 is ignored, 0x7F (not a number) counts as zero
    4   u8[32]   group g in bytes 8 * g to 8 * g + 7: first the low halves, then the high halves

value = scale / 2 * twice the E2M1 number, which is a whole number
"""

from . import fields
from .mxfp4 import DOUBLED


def decode(blocks):
    """uint8 [n, 36] -> float32 [n, 64]."""
    import numpy as np

    exponents = (blocks[:, :4] >> 3 & 15).astype("i4")
    mantissas = (blocks[:, :4] & 7) + np.where(exponents > 0, 8, 0)  # in eighths; the leading one is implied
    halves = np.ldexp(mantissas.astype("f4"), np.maximum(exponents, 1) - 11)
    halves = np.where(blocks[:, :4] == 0x7F, np.float32(0), halves)
    return fields.scaled(halves, np.frombuffer(DOUBLED, dtype="i1")[fields.planes(blocks, 4, 32, 8, 4)])


def unpack(memory):
    u8, float32, float_of_bits = memory.u8, memory.float32, memory.float_of_bits
    code, doubled = fields.plane(memory, 4, 8, 4), memory.table(DOUBLED)

    def element(address, index):
        scale = u8(address + (index >> 4))
        exponent, mantissa = (scale >> 3) & 15, scale & 7
        if scale == 0x7F:
            mantissa = 0
        elif exponent > 0:
            mantissa += 8
        else:
            exponent = 1
        return float32(mantissa) * float_of_bits((exponent - 11 + 127) << 23) * float32(doubled(code(address, index)))

    return element
