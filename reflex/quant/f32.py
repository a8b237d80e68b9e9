"""F32: one IEEE single, little-endian."""

from . import fields
from .fragment import Fragment
from .lanes import Plain
from .stream import Stream


def decode(blocks):
    """uint8 [n, 4] -> float32 [n, 1]."""
    return fields.f32(blocks, 0).copy()


def unpack(memory):
    f32 = memory.f32

    def element(address, index):
        return f32(address + 4 * index)

    return element


LANES = Plain(4, lambda v, p: v.load(p, v.float8), lambda v, p: v.load(p, v.float1))


def _fragment(ptx, base, function):
    """Two planes of the same weights: float16 numbers, and what these leave, which together have 22 bits."""
    int32, float32 = ptx.i32, ptx.f32

    def halves(a, b, j):
        a, b = ptx.bits2f(a), ptx.bits2f(b)
        near = ptx.f2h2(a, b)
        if j == 1:
            near = ptx.f2h2(float32(a - ptx.h2f_lo(near)), float32(b - ptx.h2f_hi(near)))
        return near

    halves = function(halves)

    def place(row, step, t):
        return row + 32 * t

    def load_head(at, step, t, last, wanted, raw, o):
        pass

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        unit = min(int32(4 * step + c), int32(last >> 5))
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.ldg128_if(at + 128 * unit, 0, wanted)
        raw[o + 4], raw[o + 5], raw[o + 6], raw[o + 7] = ptx.ldg128_if(at + 128 * unit, 16, wanted)

    def codes(raw, head, o, c, j, t, shift):
        return (
            halves(raw[o], raw[o + 2], j), halves(raw[o + 1], raw[o + 3], j), halves(raw[o + 4], raw[o + 6], j),
            halves(raw[o + 5], raw[o + 7], j),
        )  # fmt: skip

    def scales(raw, head, t, part):
        return float32(1), float32(1), float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(128, 0, 4, 8, _fragment, planes=2, offset=None, units=(1, 0), tiled=False)


def _stream(ptx, function):
    int32 = ptx.i32

    def load(at, t, raw, o):
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.at128(int32(at + 32 * t))
        raw[o + 4], raw[o + 5], raw[o + 6], raw[o + 7] = ptx.at128(int32(at + 32 * t + 16))

    def pair(raw, o, k):
        return ptx.bits2f(raw[o + 2 * k]), ptx.bits2f(raw[o + 2 * k + 1])

    return load, pair


STREAM = Stream(128, 2, 0, 8, _stream, floats=True)
