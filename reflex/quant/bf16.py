"""BF16: the upper 16 bits of an IEEE single, little-endian."""

from . import fields
from .lanes import Plain


def decode(blocks):
    """uint8 [n, 2] -> float32 [n, 1]."""
    return (fields.u16(blocks, 0).astype("<u4") << 16).view("<f4")


def unpack(memory):
    bf16 = memory.bf16

    def element(address, index):
        return bf16(address + 2 * index)

    return element


LANES = Plain(2, lambda v, p: v.bfloats(p), lambda v, p: v.bfloat(p))
