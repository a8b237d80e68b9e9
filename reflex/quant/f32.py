"""F32: one IEEE single, little-endian."""

from . import fields
from .lanes import Plain


def decode(blocks):
    """uint8 [n, 4] -> float32 [n, 1]."""
    return fields.f32(blocks, 0).copy()


def unpack(memory):
    f32 = memory.f32

    def element(address, index):
        return f32(address + 4 * index)

    return element


LANES = Plain(4, lambda v, p: v.load(p, v.float8), lambda v, p: v.load(p, v.float1))
