"""IQ4_XS: 256 values from the 16 levels of IQ4_NL; 8 groups of 32 with a 6-bit scale each.

    0   f16       scale d of the scales
    2   u16       bits 4-5 of scale j in bits 2j and 2j + 1
    4   u8[4]     bits 0-3 of the scales, even ones in the low halves
    8   u8[128]   codes: 16 bytes hold 32 values, two planes of 16

value = (d * (scale - 32)) * level[code]
"""

from . import codebook, fields
from .fragment import Fragment
from .iq4_nl import LEVELS, SHIFTED
from .lanes import Group, Large
from .stream import Stream


def decode(blocks):
    """uint8 [n, 136] -> float32 [n, 256]."""
    import numpy as np

    scales = fields.planes(blocks, 4, 4, 1, 4) | fields.planes(blocks, 2, 2, 1, 2) << 4
    levels = np.frombuffer(LEVELS, dtype="i1")[fields.planes(blocks, 8, 128, 16, 4)]
    return fields.scaled(fields.f16(blocks, 0) * (scales.astype("f4") - 32), levels)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    code, level = fields.plane(memory, 8, 16, 4), memory.table(LEVELS)
    low, high = fields.plane(memory, 4, 1, 4), fields.plane(memory, 2, 1, 2)

    def element(address, index):
        group = index >> 5
        scale = low(address, group) | (high(address, group) << 4)
        return f16(address) * float32(scale - 32) * float32(level(code(address, index)))

    return element


def _group(v, p):
    low = v.fields(v.load(v.at(p, 4), v.int32), range(0, 32, 4), 4)
    high = v.fields(v.b.zext(v.load(v.at(p, 2), v.int16), v.int32), range(0, 16, 2), 2)
    codes = v.b.or_(low, v.b.shl(high, v.const(high.type, 4)))
    scales = v.b.fmul(v.signed_floats(v.b.sub(codes, v.const(codes.type, 32))), v.splat(v.half(p)))

    def levels(i, count):
        quants = v.load(v.at(p, 8 + 16 * i), v.bytes16 if count == 1 else v.bytes32)
        return v.lookup(LEVELS, v.nibble_planes(quants, 0, 2, 16))

    return Group(v.twice(scales), None, levels)


LANES = Large(136, _group, signed=True)


def _fragment(ptx, base, function):
    """Lanes 0, 1 take even groups of 32 and lanes 2, 3 odd ones."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    lookup = function(codebook.sixteen(ptx, SHIFTED))

    def place(row, step, t):
        return row + (136 * step + 8 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o], raw[o + 1] = ptx.ldg64_if(at - 8 * t, 0, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        raw[o], raw[o + 1] = ptx.ldg64_if(at, 8 + 32 * c, wanted)

    def codes(raw, head, o, c, j, t, shift):
        w0, w1 = lookup(raw[o], j)
        w2, w3 = lookup(raw[o + 1], j)
        return w0, w1, w2, w3

    def scales(raw, head, t, part):
        low, high = uint32(raw[head + 1] >> uint32(8 * t)), uint32(raw[head] >> uint32(16 + 4 * t))
        even = uint32(uint32(low & uint32(15)) | uint32(uint32(high & uint32(3)) << uint32(4)))
        odd = uint32(uint32(uint32(low >> uint32(4)) & uint32(15)) | uint32(uint32(high & uint32(12)) << uint32(2)))
        d = ptx.h2f_lo(raw[head])
        s0, s1 = float32(d * float32(int32(int32(even) - 32))), float32(d * float32(int32(int32(odd) - 32)))
        return s0, s1, float32(s0 * float32(-128)), float32(s1 * float32(-128))

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 2, 4, 2, _fragment, planes=2, raised=False, offset=128, hop=32, tiled=False)


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    lookup = function(codebook.levels(ptx, LEVELS))

    def head(at, t, raw, o):
        raw[o], raw[o + 1] = ptx.at64(at)

    def load(at, p, t, raw, o):
        start = int32(at + 8 + 64 * p + 16 * t)
        raw[o], raw[o + 1] = ptx.at64(start)
        raw[o + 2], raw[o + 3] = ptx.at64(int32(start + 8))

    def codes(raw, head, o, p, j, t):
        return lookup(raw[o + j])

    def scales(raw, head, o, p, t):
        group = 4 * p + t
        low, high = uint32(raw[head + 1] >> uint32(4 * group)), uint32(raw[head] >> uint32(2 * group + 16))
        code = uint32(uint32(low & uint32(15)) | uint32(uint32(high & uint32(3)) << uint32(4)))
        return float32(ptx.h2f_lo(raw[head]) * float32(int32(int32(code) - 32))), float32(0)

    return head, load, codes, scales


STREAM = Stream(136, 2, 2, 4, _stream, mixed=4, signed=True)
