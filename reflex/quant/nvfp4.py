"""NVFP4: 64 values in the 4-bit float E2M1; 4 groups of 16 with an unsigned E4M3 scale each.

    0   u8[4]    scales; bit 7 is ignored, 0x7F (not a number) counts as zero
    4   u8[32]   group g in bytes 8 * g to 8 * g + 7: first the low halves, then the high halves

value = scale / 2 * twice the E2M1 number, which is a whole number
"""

from . import codebook, fields
from .fragment import Fragment
from .lanes import Group, Wide
from .mxfp4 import DOUBLED, RAISED, halves
from .stream import Stream


def decode(blocks):
    """uint8 [n, 36] -> float32 [n, 64]."""
    import numpy as np

    exponents = (blocks[:, :4] >> 3 & 15).astype("i4")
    mantissas = (blocks[:, :4] & 7) + np.where(exponents > 0, 8, 0)  # in eighths; the leading one is implied
    halves = np.ldexp(mantissas.astype("f4"), np.maximum(exponents, 1) - 11)
    halves = np.where(blocks[:, :4] == 0x7F, np.float32(0), halves)
    return fields.scaled(halves, np.frombuffer(DOUBLED, dtype="i1")[fields.planes(blocks, 4, 32, 8, 4)])


def unpack(memory):
    u8, float32, float_of_bits = memory.u8, memory.float32, memory.float_of_bits
    code, doubled = fields.plane(memory, 4, 8, 4), memory.table(DOUBLED)

    def element(address, index):
        scale = u8(address + (index >> 4))
        exponent, mantissa = (scale >> 3) & 15, scale & 7
        if scale == 0x7F:
            mantissa = 0
        elif exponent > 0:
            mantissa += 8
        else:
            exponent = 1
        return float32(mantissa) * float_of_bits((exponent - 11 + 127) << 23) * float32(doubled(code(address, index)))

    return element


def _halves(v, p, blocks):
    """Half of each scale: an integer of 4 bits times a power of two."""
    codes = v.strided(p, 36, blocks, v.int32)
    codes = v.ints(v.b.bitcast(codes, v.bytes(4 * blocks)))
    c = lambda value: v.const(codes.type, value)  # noqa: E731
    codes = v.b.select(v.b.icmp_unsigned("==", codes, c(0x7F)), c(0), codes)
    exponent, mantissa = v.fields(codes, [3] * codes.type.count, 4), v.b.and_(codes, c(7))
    subnormal = v.b.icmp_unsigned("==", exponent, c(0))
    mantissa = v.b.select(subnormal, mantissa, v.b.or_(mantissa, c(8)))
    power = v.b.shl(v.b.add(v.b.select(subnormal, c(1), exponent), c(127 - 11)), c(23))
    return v.b.fmul(v.signed_floats(mantissa), v.b.bitcast(power, v.signed_floats(mantissa).type))


def _part(v, p, count):
    scales = _halves(v, p, count // 2)

    def codes(i, n):
        quants = v.load(v.at(p, 36 * (i // 2) + 4 + 16 * (i % 2)), v.bytes(16 * n))
        return v.lookup(RAISED, v.nibble_planes(quants, 0, 2, 8))

    return Group(scales, None, codes, bias=16)


LANES = Wide(36, 2, _part)


def _fragment(ptx, base, function):
    """A step is two blocks; lanes 0, 1 take the low and high halves of one group's bytes, lanes 2, 3 of the next; each
    reads half of them."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    pairs = function(halves(ptx))

    def place(row, step, t):
        return row + 8 * (t >> 1)

    def load_head(at, step, t, last, wanted, raw, o):
        block = min(int32(2 * step + (t >> 1)), last)
        raw[o] = ptx.ldg16_if(at - 8 * (t >> 1), int32(36 * block + 2 * (t & 1)), wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        start = at + (36 * min(int32(2 * step + (c >> 1)), last) + 4 * (t & 1))
        raw[o] = ptx.ldg32_if(start, 4 + 16 * (c & 1), wanted)

    def codes(raw, head, o, c, j, t, shift):
        half = uint32((t & 1) << 2)
        w0, w1 = pairs(uint32(ptx.shfl_four(raw[o], int32(t & 2)) >> half), 0)
        w2, w3 = pairs(uint32(ptx.shfl_four(raw[o], int32(t | 1)) >> half), 0)
        return w0, w1, w2, w3

    def scales(raw, head, t, part):
        """E4M3 bits are 2**-8 of their value as float16 bits; a quarter of that is half the scale, 2**-9 for the codes."""
        first, second = uint32(raw[head] & uint32(0x7F)), uint32(uint32(raw[head] >> uint32(8)) & uint32(0x7F))
        if first == 0x7F:
            first = uint32(0)
        if second == 0x7F:
            second = uint32(0)
        both = uint32(uint32(first << uint32(7)) | uint32(second << uint32(23)))
        return float32(ptx.h2f_lo(both) * float32(0.25)), float32(ptx.h2f_hi(both) * float32(0.25)), float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(128, 1, 4, 1, _fragment, minimum=False, tiled=False)


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    lookup = function(codebook.levels(ptx, DOUBLED))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        start = int32(at + 72 * p + 36 * (t >> 1))
        raw[o] = ptx.at16(int32(start + 2 * (t & 1)))
        for k in range(4):
            raw[o + 1 + k] = ptx.at32(int32(start + 4 + 16 * (t & 1) + 4 * k))

    def codes(raw, head, o, p, j, t):
        return lookup(raw[o + 1 + j])

    def scales(raw, head, o, p, t):
        """E4M3 bits are 2**-8 of their value as float16 bits; half of the scale is meant."""
        first, second = uint32(raw[o] & uint32(0x7F)), uint32(uint32(raw[o] >> uint32(8)) & uint32(0x7F))
        if first == 0x7F:
            first = uint32(0)
        if second == 0x7F:
            second = uint32(0)
        both = uint32(uint32(first << uint32(7)) | uint32(second << uint32(23)))
        return float32(ptx.h2f_lo(both) * float32(128)), float32(ptx.h2f_hi(both) * float32(128)), float32(0), float32(0)

    return head, load, codes, scales


STREAM = Stream(144, 2, 0, 5, _stream, mixed=2, signed=True, halves=True)
