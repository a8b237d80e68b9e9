"""BF16: the upper 16 bits of an IEEE single, little-endian."""

from . import fields
from .fragment import Fragment
from .lanes import Plain
from .stream import Stream


def decode(blocks):
    """uint8 [n, 2] -> float32 [n, 1]."""
    return (fields.u16(blocks, 0).astype("<u4") << 16).view("<f4")


def unpack(memory):
    bf16 = memory.bf16

    def element(address, index):
        return bf16(address + 2 * index)

    return element


LANES = Plain(2, lambda v, p: v.bfloats(p), lambda v, p: v.bfloat(p))


def _fragment(ptx, base, function):
    int32, float32 = ptx.i32, ptx.f32
    uint32 = ptx.u32

    def halves(a, b, shift):
        """The lower or upper two of two pairs, as float16: exact from 2**-14 to 2**16, within 2**-25 below."""
        upper = uint32(0xFFFF0000)
        return ptx.f2h2(ptx.bits2f(uint32(uint32(a << shift) & upper)), ptx.bits2f(uint32(uint32(b << shift) & upper)))

    halves = function(halves)

    def place(row, step, t):
        return row + 16 * t

    def load_head(at, step, t, last, wanted, raw, o):
        pass

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        unit = min(int32(4 * step + c), int32(last >> 5))
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.ldg128_if(at + 64 * unit, 0, wanted)

    def codes(raw, head, o, c, j, t, shift):
        a, b, d, e = raw[o], raw[o + 1], raw[o + 2], raw[o + 3]
        lower, upper = uint32(16), uint32(0)
        return halves(a, b, lower), halves(a, b, upper), halves(d, e, lower), halves(d, e, upper)

    def scales(raw, head, t, part):
        return float32(1), float32(1), float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(128, 0, 4, 4, _fragment, offset=None)


def _stream(ptx, function):
    int32, uint32 = ptx.i32, ptx.u32

    def load(at, t, raw, o):
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.at128(int32(at + 16 * t))

    def pair(raw, o, k):
        return ptx.bits2f(uint32(raw[o + k] << uint32(16))), ptx.bits2f(uint32(raw[o + k] & uint32(0xFFFF0000)))

    return load, pair


STREAM = Stream(64, 4, 0, 4, _stream, floats=True, rounded=True)
