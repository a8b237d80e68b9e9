"""MXFP4: 32 values in the 4-bit float E2M1, one power-of-two scale in E8M0 (OCP Microscaling Formats 1.0).

    0   u8       exponent e of the scale
    1   u8[16]   value j in the low half of byte j, value j + 16 in its high half

value = 2**(e - 128) * twice the E2M1 number, which is a whole number
"""

from . import codebook, fields
from .fragment import Fragment
from .lanes import Small, raised
from .stream import Stream, unaligned

DOUBLED = bytes(n & 255 for n in (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))  # code 8 is plain zero here


def decode(blocks):
    """uint8 [n, 17] -> float32 [n, 32]."""
    import numpy as np

    e = blocks[:, :1].astype("u4")
    bits = np.where(e < 2, np.uint32(1 << 21) << e, (e - 1) << np.uint32(23))  # 2**-128 and 2**-127 are subnormal
    codes = fields.planes(blocks, 1, 16, 16, 4)
    return bits.view("f4") * np.frombuffer(DOUBLED, dtype="i1")[codes].astype("f4")


def unpack(memory):
    u8, float32, float_of_bits = memory.u8, memory.float32, memory.float_of_bits
    code, doubled = fields.plane(memory, 1, 16, 4), memory.table(DOUBLED)

    def element(address, index):
        e = u8(address)
        bits = (1 << 21) << e if e < 2 else (e - 1) << 23
        return float_of_bits(bits) * float32(doubled(code(address, index)))

    return element


def powers(v, p, count):
    """2**(e - 128) of the exponents at the start of `count` blocks."""
    e = v.ints(v.strided(p, 17, count, v.int8))
    c = lambda value: v.const(e.type, value)  # noqa: E731
    subnormal, normal = v.b.shl(c(1 << 21), e), v.b.shl(v.b.sub(e, c(1)), c(23))
    bits = v.b.select(v.b.icmp_unsigned("<", e, c(2)), subnormal, normal)
    return v.b.bitcast(bits, v.floats(e).type)


RAISED = raised(DOUBLED, 16)
LANES = Small(17, lambda v, blocks: v.lookup(RAISED, v.nibbles([v.at(p, 1) for p in blocks])), bias=16, scales=powers)


def halves(ptx):
    """Function (word of eight E2M1 numbers, plane j) -> registers (0, 2) and (1, 3) of the low (0) or high (1) halves of its
    bytes: a half with those bits is 2**-14 times the number, so 2**-24 times 512 of what is doubled."""
    uint32 = ptx.u32

    def pairs(word, j):
        size, sign, up, top = uint32(0x0E000E00), uint32(0x80008000), uint32(9 - 4 * j), uint32(12 - 4 * j)
        odd = uint32(word >> uint32(8))
        return (
            uint32(uint32(uint32(word << up) & size) | uint32(uint32(word << top) & sign)),
            uint32(uint32(uint32(odd << up) & size) | uint32(uint32(odd << top) & sign)),
        )

    return pairs


def _fragment(ptx, base, function):
    """Lanes 0, 1 take even blocks and lanes 2, 3 odd ones; blocks lie at any byte, so the lane's first place is kept."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    pairs = function(halves(ptx))

    def place(row, step, t):
        return row + (8 * (t & 1) + 1)

    def load_head(at, step, t, last, wanted, raw, o):
        row = at - (8 * (t & 1) + 1)
        raw[o] = ptx.ldg8_if(row, int32(17 * min(int32(8 * step + 2 * t), last)), wanted)
        raw[o + 1] = ptx.ldg8_if(row, int32(17 * min(int32(8 * step + 2 * t + 1), last)), wanted)
        raw[o + 2] = uint32(uint32(int32(at) + (t >> 1)) << uint32(3))

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        start = (at + 17 * min(int32(8 * step + 2 * c + (t >> 1)), last)) & -4
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(start, 4 * i, wanted)

    def codes(raw, head, o, c, j, t, shift):
        shift = uint32(raw[head + 2] + uint32(16 * c))  # two blocks are 34 bytes; shf_r takes it modulo 32
        w0, w1 = pairs(ptx.shf_r(raw[o], raw[o + 1], shift), j)
        w2, w3 = pairs(ptx.shf_r(raw[o + 1], raw[o + 2], shift), j)
        return w0, w1, w2, w3

    def scales(raw, head, t, part):
        """2**(e - 128 - 9), 0 where that is below the smallest normal number."""
        s0 = ptx.bits2f(uint32(uint32(max(int32(int32(raw[head]) - 10), int32(0))) << uint32(23)))
        s1 = ptx.bits2f(uint32(uint32(max(int32(int32(raw[head + 1]) - 10), int32(0))) << uint32(23)))
        return s0, s1, float32(0), float32(0)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 3, 4, 3, _fragment, planes=2, raised=False, hop=32, minimum=False, tiled=False)


def _stream(ptx, function):
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    read, word = map(function, unaligned(ptx, 4))
    lookup = function(codebook.levels(ptx, DOUBLED))

    def head(at, t, raw, o):
        pass

    def load(at, p, t, raw, o):
        start = int32(at + 68 * p + 17 * t)
        raw[o] = ptx.at8(start)
        read(int32(start + 1), raw, o + 1)

    def codes(raw, head, o, p, j, t):
        return lookup(word(raw, o + 1, j, 0))

    def scales(raw, head, o, p, t):
        """2**(e - 128), 0 where that is below the smallest normal number."""
        return ptx.bits2f(uint32(uint32(max(int32(int32(raw[o]) - 1), int32(0))) << uint32(23))), float32(0)

    return head, load, codes, scales


STREAM = Stream(136, 2, 0, 7, _stream, mixed=4, signed=True)
