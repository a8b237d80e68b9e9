"""Q6_K: 256 values of 6 bits; 16 groups of 16 with a signed 8-bit scale each.

    0     u8[128]   bits 0-3: 64 bytes hold 128 values, two planes of 64
    128   u8[64]    bits 4-5: 32 bytes hold 128 values, four planes of 32
    192   i8[16]    scales
    208   f16       scale d of the scales

value = (d * scale) * (quant - 32)
"""

from . import fields
from .dot import Dot
from .fragment import Fragment
from .lanes import Group, Large


def decode(blocks):
    """uint8 [n, 210] -> float32 [n, 256]."""
    quants = fields.planes(blocks, 0, 128, 64, 4) | fields.planes(blocks, 128, 64, 32, 2) << 4
    return fields.scaled(fields.f16(blocks, 208) * fields.i8(blocks, 192, 16).astype("f4"), quants.astype("i1") - 32)


def unpack(memory):
    f16, i8, float32 = memory.f16, memory.i8, memory.float32
    low, high = fields.plane(memory, 0, 64, 4), fields.plane(memory, 128, 32, 2)

    def element(address, index):
        scale = f16(address + 208) * float32(i8(address + 192 + (index >> 4)))
        return scale * float32((low(address, index) | (high(address, index) << 4)) - 32)

    return element


def _group(v, p):
    step = v.splat(v.half(v.at(p, 208)), 16)
    scales = v.b.fmul(v.signed_floats(v.load(v.at(p, 192), v.bytes16)), step)
    high = [v.load(v.at(p, 128 + 32 * half), v.bytes32) for half in (0, 1)]

    def codes(i, count):
        half, part = divmod(i, 4)
        quants = v.load(v.at(p, 64 * half + 32 * (part % 2)), v.bytes32 if count == 1 else v.bytes64)
        four = v.high_nibbles(quants) if part >= 2 else v.low_nibbles(quants)
        return v.b.or_(four, v.bit_planes(high[half], [2 * (part + k) for k in range(count)], 2, 4))

    return Group(scales, v.b.fmul(scales, v.const(scales.type, -32.0)), codes)


LANES = Large(210, _group)


def _fragment(ptx, base, function):
    """A step is half a block: 64 bytes of low bits, 32 of high ones and 8 scales."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(row, step, t):
        return row + (210 * (step >> 1) + 8 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        half = int32(step & 1)
        high = (at & -4) + int32(32 * half)
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(high, 128 + 4 * i, wanted)
        raw[o + 3] = ptx.ldg16_if(at + int32(8 * half - 6 * t), 192, wanted)
        raw[o + 4] = ptx.ldg16_if(at - 8 * t, 208, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        low = (at & -4) + int32((step & 1) << 6)
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(low, 32 * c + 4 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        low, high = uint32(0x000F000F << 4 * j), uint32(0x00030003 << (2 * c + 4 * j))
        up = uint32((0x3C00 + 1024 * (4 - 2 * c)) * 0x10001)  # what brings the high bits above the low ones, as halves
        a, b = ptx.shf_r(raw[o], raw[o + 1], shift), ptx.shf_r(raw[o + 1], raw[o + 2], shift)
        x, y = ptx.shf_r(raw[head], raw[head + 1], shift), ptx.shf_r(raw[head + 1], raw[head + 2], shift)
        return (
            ptx.fma2(uint32(x & high), up, uint32(uint32(a & low) | base)),
            ptx.fma2(uint32(uint32(x >> uint32(8)) & high), up, uint32(uint32(uint32(a >> uint32(8)) & low) | base)),
            ptx.fma2(uint32(y & high), up, uint32(uint32(b & low) | base)),
            ptx.fma2(uint32(uint32(y >> uint32(8)) & high), up, uint32(uint32(uint32(b >> uint32(8)) & low) | base)),
        )

    def scales(raw, head, t, part):
        d, pair = ptx.h2f_lo(raw[head + 4]), raw[head + 3]
        s0 = float32(d * float32(int32(int32(uint32(pair << uint32(24))) >> int32(24))))
        s1 = float32(d * float32(int32(int32(uint32(pair << uint32(16))) >> int32(24))))
        return s0, s1, float32(s0 * float32(-32)), float32(s1 * float32(-32))

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(128, 5, 2, 3, _fragment, planes=2, offset=32)


def _dot_loads(ptx):
    """A lane has 16 neighbours of each of the four groups of 32 in one half: two runs of 16 bytes and one of high bits."""
    int32 = ptx.i32

    def place(b, t):
        return int32(16 * b + 8 * (t >> 1) + (t & 1))

    def load(row, b, t, wanted, raw, o):
        at = (row + 210 * b) & -4
        low = at + (64 * (t >> 1) + 16 * (t & 1))
        high = at + (128 + 16 * t)
        for i in range(5):
            raw[o + i] = ptx.ldg32_if(low, 4 * i, wanted)
            raw[o + 5 + i] = ptx.ldg32_if(low, 32 + 4 * i, wanted)
            raw[o + 10 + i] = ptx.ldg32_if(high, 4 * i, wanted)

    def load_head(row, b, t, wanted, raw, o):
        at = row + 210 * b
        aligned = (at & -4) + (192 + 8 * (t >> 1))
        for i in range(3):
            raw[o + 15 + i] = ptx.ldg32_if(aligned, 4 * i, wanted)
        raw[o + 18] = ptx.ldg16_if(at, 208, wanted)

    return place, load, load_head


def _dot(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def word(raw, at, i, k, shift):
        low = ptx.shf_r(raw[at], raw[at + 1], shift)
        high = ptx.shf_r(raw[i], raw[i + 1], shift)
        if k >= 2:
            low = uint32(low >> uint32(4))
        if k == 0:
            high = uint32(high << uint32(4))
        if k == 1:
            high = uint32(high << uint32(2))
        if k == 3:
            high = uint32(high >> uint32(2))
        return uint32(uint32(low & uint32(0x0F0F0F0F)) | uint32(high & uint32(0x30303030)))

    word = function(word)

    def codes(raw, o, k, shift):
        at, high = o + 5 * (k & 1), o + 10
        return (
            word(raw, at, high, k, shift), word(raw, at + 1, high + 1, k, shift), word(raw, at + 2, high + 2, k, shift),
            word(raw, at + 3, high + 3, k, shift),
        )  # fmt: skip

    def factors(sh, at, t, f):
        f[0], f[4], f[1], f[5] = ptx.ldsf4(sh, int32(at + 8 * (t >> 1)))
        f[2], f[6], f[3], f[7] = ptx.ldsf4(sh, int32(at + 8 * (t >> 1) + 4))

    def finish(raw, o, t, n, i, f, shift):
        count = uint32(shift + uint32((t & 1) << 3))  # 0, 8, 16 or 24
        total = float32(0)
        for k in range(2):
            pair = ptx.shf_r(raw[o + 15 + k], raw[o + 16 + k], count)  # the scales of pieces 2k and 2k + 1: bytes 0 and 2
            even = int32(int32(pair << uint32(24)) >> int32(24))
            odd = int32(int32(pair << uint32(8)) >> int32(24))
            total = ptx.fmaf(f[2 * k], float32(int32(even * n[i + 2 * k])), total)
            total = ptx.fmaf(f[2 * k + 1], float32(int32(odd * n[i + 2 * k + 1])), total)
        return float32(ptx.h2f_lo(raw[o + 18]) * total)

    return (*_dot_loads(ptx), codes, factors, finish)


DOT = Dot(19, 210, (0, 2, 4, 6), _dot, offset=32)
