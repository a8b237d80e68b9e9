"""F16: one IEEE half, little-endian."""

from . import fields
from .lanes import Plain


def decode(blocks):
    """uint8 [n, 2] -> float32 [n, 1]."""
    return fields.f16(blocks, 0)


def unpack(memory):
    f16 = memory.f16

    def element(address, index):
        return f16(address + 2 * index)

    return element


LANES = Plain(2, lambda v, p: v.halves(p, 2), lambda v, p: v.half(p))
