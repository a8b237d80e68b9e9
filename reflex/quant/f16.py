"""F16: one IEEE half, little-endian."""

from . import fields
from .fragment import Fragment
from .lanes import Plain
from .stream import Stream


def decode(blocks):
    """uint8 [n, 2] -> float32 [n, 1]."""
    return fields.f16(blocks, 0)


def unpack(memory):
    f16 = memory.f16

    def element(address, index):
        return f16(address + 2 * index)

    return element


LANES = Plain(2, lambda v, p: v.halves(p, 2), lambda v, p: v.half(p))


def _fragment(ptx, base, function):
    int32, float32 = ptx.i32, ptx.f32
    uint32 = ptx.u32

    def place(row, step, t):
        return row + 16 * t

    def load_head(at, step, t, last, wanted, raw, o):
        pass

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        unit = min(int32(4 * step + c), int32(last >> 5))
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.ldg128_if(at + 64 * unit, 0, wanted)

    def codes(raw, head, o, c, j, t, shift):
        a, b, d, e = raw[o], raw[o + 1], raw[o + 2], raw[o + 3]
        even, odd = uint32(0x5410), uint32(0x7632)
        return ptx.prmt(a, b, even), ptx.prmt(a, b, odd), ptx.prmt(d, e, even), ptx.prmt(d, e, odd)

    def scales(raw, head, t, part):
        return float32(1), float32(1), float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(128, 0, 4, 4, _fragment, offset=None)


def _stream(ptx, function):
    int32 = ptx.i32

    def load(at, t, raw, o):
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.at128(int32(at + 16 * t))

    def pair(raw, o, k):
        return ptx.h2f_lo(raw[o + k]), ptx.h2f_hi(raw[o + k])

    return load, pair


STREAM = Stream(64, 4, 0, 4, _stream, floats=True, rounded=True)
