"""Q4_K: 256 values of 4 bits; 8 groups of 32 with a 6-bit scale and a 6-bit minimum each.

    0    f16       scale d of the scales
    2    f16       scale dmin of the minima
    4    u8[12]    scales and minima, see sixbit.py
    16   u8[128]   quants: 32 bytes hold 64 values, two planes of 32

value = (d * scale) * quant - dmin * minimum
"""

from . import fields, sixbit
from .dot import Dot
from .fragment import Fragment
from .lanes import Group, Large, scales_and_minimums


def decode(blocks):
    """uint8 [n, 144] -> float32 [n, 256]."""
    scales, minima = sixbit.decode(blocks, 4)
    values = fields.scaled(fields.f16(blocks, 0) * scales.astype("f4"), fields.planes(blocks, 16, 128, 32, 4))
    return values - (fields.f16(blocks, 2) * minima.astype("f4")).repeat(32, axis=1)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    quant = fields.plane(memory, 16, 32, 4)
    scale, minimum = sixbit.unpack(memory, 4)

    def element(address, index):
        group = index >> 5
        step = f16(address) * float32(scale(address, group))
        return step * float32(quant(address, index)) - f16(address + 2) * float32(minimum(address, group))

    return element


def _group(v, p):
    scales, minimums = scales_and_minimums(v, v.at(p, 4))
    step, dmin = v.splat(v.half(p)), v.splat(v.b.fneg(v.half(v.at(p, 2))))

    def codes(i, count):
        return v.nibble_planes(v.load(v.at(p, 16 + 32 * (i // 2)), v.bytes32), i % 2, count)

    return Group(v.twice(v.b.fmul(scales, step)), v.twice(v.b.fmul(minimums, dmin)), codes)


LANES = Large(144, _group)


def _fragment(ptx, base, function):
    uint32 = ptx.u32
    scales_of = function(sixbit.fragment(ptx))

    def place(row, step, t):
        return row + (144 * step + 8 * t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.ldg128_if(at - 8 * t, 0, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        raw[o], raw[o + 1] = ptx.ldg64_if(at, 16 + 32 * c, wanted)

    def codes(raw, head, o, c, j, t, shift):
        nibbles = uint32(0x000F000F << 4 * j)
        a, b = raw[o], raw[o + 1]
        return (
            uint32(uint32(a & nibbles) | base),
            uint32(uint32(uint32(a >> uint32(8)) & nibbles) | base),
            uint32(uint32(b & nibbles) | base),
            uint32(uint32(uint32(b >> uint32(8)) & nibbles) | base),
        )

    def scales(raw, head, t, part):
        return scales_of(raw[head], raw[head + 1], raw[head + 2], raw[head + 3], t)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 4, 4, 2, _fragment, planes=2)


def _dot(ptx, function):
    """Piece 0 is in the low nibbles of 16 bytes, piece 1 in the high ones; 2 and 3 lie 64 bytes further."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(b, t):
        return int32(16 * b + 4 * (t >> 1) + (t & 1))

    def load(row, b, t, wanted, raw, o):
        at = row + (144 * b + 16 * t)
        raw[o], raw[o + 1], raw[o + 2], raw[o + 3] = ptx.ldg128_if(at, 16, wanted)
        raw[o + 4], raw[o + 5], raw[o + 6], raw[o + 7] = ptx.ldg128_if(at, 80, wanted)

    def load_head(row, b, t, wanted, raw, o):
        raw[o + 8], raw[o + 9], raw[o + 10], raw[o + 11] = ptx.ldg128_if(row, 144 * b, wanted)

    def codes(raw, o, k, shift):
        nibbles, at = uint32(0xF0F0F0F0 if k & 1 else 0x0F0F0F0F), o + 4 * (k >> 1)  # high ones stay: 16 times the code
        return (
            uint32(raw[at] & nibbles), uint32(raw[at + 1] & nibbles), uint32(raw[at + 2] & nibbles), uint32(raw[at + 3] & nibbles),
        )  # fmt: skip

    def factors(sh, at, t, f):
        f[0], f[1], f[2], f[3] = ptx.ldsf4(sh, int32(at + 4 * (t >> 1)))
        f[4], f[5], f[6], f[7] = ptx.ldsf4(sh, int32(at + 4 * (t >> 1) + 8))
        if t & 1:  # the other lane of a pair has the sums of the even groups
            f[1], f[5] = f[3], f[7]

    def finish(raw, o, t, n, i, f, shift):
        pair, odd = uint32((t >> 1) << 4), uint32((t & 1) << 3)
        first, second, third = uint32(raw[o + 9] >> pair), uint32(raw[o + 10] >> pair), uint32(raw[o + 11] >> pair)
        scales = uint32(first & uint32(0x3F3F))
        later = uint32(uint32(third & uint32(0x0F0F)) | uint32(uint32(first >> uint32(2)) & uint32(0x3030)))
        minimum = uint32(uint32(second >> odd) & uint32(0x3F))
        later_minimum = uint32(
            uint32(uint32(third >> uint32(odd + 4)) & uint32(0x0F)) | uint32(uint32(second >> uint32(odd + 2)) & uint32(0x30))
        )
        low = float32(f[0] * float32(int32(int32(scales & uint32(255)) * n[i])))
        low = ptx.fmaf(f[4], float32(int32(int32(later & uint32(255)) * n[i + 2])), low)
        high = float32(f[2] * float32(int32(int32(scales >> uint32(8)) * n[i + 1])))
        high = ptx.fmaf(f[6], float32(int32(int32(later >> uint32(8)) * n[i + 3])), high)
        least = ptx.fmaf(float32(int32(later_minimum)), f[5], float32(float32(int32(minimum)) * f[1]))
        return ptx.fmaf(ptx.h2f_lo(raw[o + 8]), ptx.fmaf(high, float32(0.0625), low), -float32(ptx.h2f_hi(raw[o + 8]) * least))

    return place, load, load_head, codes, factors, finish


DOT = Dot(12, 144, (0, 2, 8, 10), _dot)
