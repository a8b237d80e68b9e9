"""MXFP4: 32 values in the 4-bit float E2M1, one power-of-two scale in E8M0 (OCP Microscaling Formats 1.0).

    0   u8       exponent e of the scale
    1   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = 2**(e - 128) * twice the E2M1 number, which is a whole number
"""

from . import fields

DOUBLED = bytes(n & 255 for n in (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))  # code 8 is plain zero here


def decode(blocks):
    """uint8 [n, 17] -> float32 [n, 32]."""
    import numpy as np

    e = blocks[:, :1].astype("u4")
    bits = np.where(e < 2, np.uint32(1 << 21) << e, (e - 1) << np.uint32(23))  # 2**-128 and 2**-127 are subnormal
    codes = fields.planes(blocks, 1, 16, 16, 4)
    return bits.view("f4") * np.frombuffer(DOUBLED, dtype="i1")[codes].astype("f4")


def unpack(memory):
    u8, float32, float_of_bits = memory.u8, memory.float32, memory.float_of_bits
    code, doubled = fields.plane(memory, 1, 16, 4), memory.table(DOUBLED)

    def element(address, index):
        e = u8(address)
        bits = (1 << 21) << e if e < 2 else (e - 1) << 23
        return float_of_bits(bits) * float32(doubled(code(address, index)))

    return element
