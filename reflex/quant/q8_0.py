"""Q8_0: 32 signed bytes, one half scale.

    0   f16      scale d
    2   i8[32]   quants

value = d * quant
"""

from . import fields
from .fragment import Fragment
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


def _fragment(ptx, base, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def load_head(w, row, step, last, t, wanted, raw, at):
        raw[at] = ptx.ldg16_if(w, row + 34 * min(int32(4 * step + t), last), wanted)

    def load_chunk(w, row, step, last, t, c, wanted, raw, at):
        start = (row + (34 * min(int32(4 * step + c), last) + 2 + 8 * t)) & -4
        raw[at] = ptx.ldg32_if(w, start, wanted)
        raw[at + 1] = ptx.ldg32_if(w, start + 4, wanted)
        raw[at + 2] = ptx.ldg32_if(w, start + 8, wanted)

    def codes(raw, head, at, c, j, t, row, step):
        shift = uint32(int32(int32(row + 34 * c + 2) & 2) << 3)
        byte, flip = uint32(0x00FF00FF), uint32(0x00800080 | base)  # -128 .. 127 as 0 .. 255
        a, b = ptx.shf_r(raw[at], raw[at + 1], shift), ptx.shf_r(raw[at + 1], raw[at + 2], shift)
        return (
            uint32((a & byte) ^ flip),
            uint32((uint32(a >> uint32(8)) & byte) ^ flip),
            uint32((b & byte) ^ flip),
            uint32((uint32(b >> uint32(8)) & byte) ^ flip),
        )

    def scales(raw, head, t, row, step):
        d = ptx.h2f_lo(raw[head])
        m = float32(d * float32(-128))
        return d, d, m, m

    return load_head, load_chunk, codes, scales


FRAGMENT = Fragment(128, 1, 4, 3, _fragment, offset=128)
