"""TQ1_0: 256 values of -1, 0, 1 packed five to a byte, one half scale.

    0    u8[32]   values 0-159: digit p of byte j is value 32 * p + j
    32   u8[16]   values 160-239: digit p of byte j is value 160 + 16 * p + j
    48   u8[4]    values 240-255: digit p of byte j is value 240 + 4 * p + j; four digits only
    52   f16      scale d

A byte is a fraction of 256 in base 3, most significant digit first: digit p is floor(3 * (byte * 3**p mod 256) / 256).
value = d * (digit - 1)
"""

from . import fields

_POWERS = (1, 3, 9, 27, 81)
_PARTS = ((0, 32, 5), (32, 16, 5), (48, 4, 4))  # first byte, bytes, digits


def decode(blocks):
    """uint8 [n, 54] -> float32 [n, 256]."""
    import numpy as np

    powers = np.array(_POWERS, dtype="u1").reshape(1, 5, 1)
    parts = [(blocks[:, None, at : at + n] * powers[:, :d]).reshape(len(blocks), n * d) for at, n, d in _PARTS]
    digits = np.concatenate(parts, axis=1).astype("u2") * 3 >> 8
    return fields.f16(blocks, 52) * (digits.astype("f4") - 1)


def unpack(memory):
    f16, u8, float32 = memory.f16, memory.u8, memory.float32
    power = memory.table(bytes(_POWERS))

    def element(address, index):
        if index < 160:
            byte, digit = index & 31, index >> 5
        elif index < 240:
            byte, digit = 32 + (index & 15), (index - 160) >> 4
        else:
            byte, digit = 48 + (index & 3), (index - 240) >> 2
        fraction = (u8(address + byte) * power(digit)) & 255
        return f16(address + 52) * float32(((fraction * 3) >> 8) - 1)

    return element
