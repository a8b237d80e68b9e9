"""Q1_0: 128 signs and one half scale.

    0   f16      scale d
    2   u8[16]   one bit per value, lowest bit first

value = d where the bit is set, otherwise -d
"""

from . import fields
from .fragment import Fragment
from .lanes import Group, Wide
from .stream import Stream, unaligned


def decode(blocks):
    """uint8 [n, 18] -> float32 [n, 128]."""
    return fields.f16(blocks, 0) * (2 * fields.planes(blocks, 2, 16, 1, 1).astype("f4") - 1)


def unpack(memory):
    f16, float32 = memory.f16, memory.float32
    bit = fields.plane(memory, 2, 1, 1)

    def element(address, index):
        return f16(address) * float32(2 * bit(address, index) - 1)

    return element


def _part(v, p, count):
    step = v.half_runs([v.at(p, 18 * k) for k in range(count // 4)], 8)

    def codes(i, n):  # 0 and 2, so that the minimum is what the others' is: - scale
        return v.bit_bytes([v.at(p, 18 * (k // 4) + 2 + 4 * (k % 4)) for k in range(i, i + n)], 2)

    return Group(step, v.b.fneg(step), codes)


def _whole(v, p):
    """In the combed order, of which byte 4 n + i of unit k is for value 16 n + 4 i + k: bit k or 4 + k of byte 2 n + i / 2."""
    blocks = [v.load(v.at(p, o), v.bytes16) for o in (2, 20)]

    def codes(k, h, halves):
        octets = v.joined(blocks[h : h + halves])
        twice = v.twice(octets)
        bit = v.vector(twice.type, [1 << k, 16 << k] * octets.type.count)
        return v.masked(v.b.icmp_unsigned("==", v.b.and_(twice, bit), bit), v.int8, 2)

    return Group(v.half_runs([p, v.at(p, 18)], 8), None, codes, bias=1)


LANES = Wide(18, 4, _part, _whole)


def _fragment(ptx, base, function):
    """A step is two blocks; a lane reads the bits of 64 values. A code is 16 or 0, which keeps the scale small."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def place(row, step, t):
        return row

    def load_head(at, step, t, last, wanted, raw, o):
        start = at + 18 * min(int32(2 * step + (t >> 1)), last)
        raw[o] = ptx.ldg16_if(start, 0, wanted)
        for i in range(3):
            raw[o + 1 + i] = ptx.ldg32_if(((start + 2) & -4) + 8 * (t & 1), 4 * i, wanted)
        raw[o + 4] = uint32(uint32(int32(start + 2) & 2) << uint32(3))

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        pass

    def codes(raw, head, o, c, j, t, shift):
        k, on = head + 1 + (j & 1), uint32(0x00100010)
        word = ptx.shfl_four(ptx.shf_r(raw[k], raw[k + 1], raw[head + 4]), int32(2 * c + (j >> 1)))
        bits = uint32(ptx.prmt(word, uint32(0), uint32(0x4440 + t)) * uint32(0x4001))  # bit 2 comes to the upper half
        return (
            uint32(uint32(uint32(bits << uint32(4)) & on) | base),
            uint32(uint32(uint32(bits << uint32(3)) & on) | base),
            uint32(uint32(bits & on) | base),
            uint32(uint32(uint32(bits >> uint32(1)) & on) | base),
        )

    def scales(raw, head, t, part):
        d = ptx.h2f_lo(raw[head])
        return float32(d * float32(0.125)), float32(d * float32(0.125)), float32(-d), float32(-d)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 5, 2, 0, _fragment, planes=4, offset=8, tiled=False)


def _stream(ptx, function):
    int32 = ptx.i32
    read, word = map(function, unaligned(ptx, 1))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        raw[o] = ptx.at16(int32(at + 18 * p))
        read(int32(at + 18 * p + 2 + 4 * t), raw, o + 1)

    def codes(raw, head, o, p, j, t):
        return word(raw, o + 1, 0, 0)

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[o])

    return head, load, codes, scales


STREAM = Stream(72, 2, 0, 4, _stream, bits=True, run=512)
