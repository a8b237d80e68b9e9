"""Q8_0: 32 signed bytes, one half scale.

    0   f16      scale d
    2   i8[32]   quants

value = d * quant
"""

from . import fields
from .lanes import Small


def decode(blocks):
    """uint8 [n, 34] -> float32 [n, 32]."""
    return fields.f16(blocks, 0) * fields.i8(blocks, 2, 32).astype("f4")


def unpack(memory):
    f16, i8, float32 = memory.f16, memory.i8, memory.float32

    def element(address, index):
        return f16(address) * float32(i8(address + 2 + index))

    return element


LANES = Small(34, lambda v, blocks: v.joined([v.load(v.at(p, 2), v.bytes32) for p in blocks]), signed=True)
