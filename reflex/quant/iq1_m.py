"""IQ1_M: 256 values as 32 points of 8 from the grid of IQ1_S, shifted; 16 groups of 16 with a 3-bit scale.

    0    u8[32]   bits 0-7 of the grid indices
    32   u8[16]   a half byte for each point, low half first: bits 8-10 of the grid index; bit 3: shift down
    48   u16[4]   four 3-bit scales each from bit 0 up; bits 12-15 make the half scale d, lowest part first

value = d * (2 * scale + 1) * (coordinate + 1/8, or - 1/8)
"""

from . import codebook, combed, fields, grids
from .fragment import Fragment
from .iq1_s import eighths, nibbles
from .lanes import Group, Large, nibbles_in_turn, odd_scales, points_of
from .stream import Stream, entries_of_bytes

OFFSET = 9  # a code is 8 * (coordinate + 1), and 2 where it is shifted up


def decode(blocks):
    """uint8 [n, 56] -> float32 [n, 256]."""
    import numpy as np

    n = len(blocks)
    words = fields.u16(blocks, 48, 4)
    d = (words >> 12 << np.array([0, 4, 8, 12], dtype="u2")).sum(axis=1, keepdims=True, dtype="<u2").view("<f2")
    codes = (words[:, :, None] >> np.array([0, 3, 6, 9], dtype="u2") & 7).reshape(n, 16)
    high = fields.planes(blocks, 32, 16, 1, 4)
    points = np.frombuffer(grids.iq1_s(), dtype="i1").reshape(-1, 8)[blocks[:, :32] | (high & 7).astype("u2") << 8]
    shifts = np.where(high & 8, np.float32(-0.125), np.float32(0.125))
    return fields.scaled(d.astype("f4") * (2 * codes + 1).astype("f4"), points.reshape(n, 256) + shifts.repeat(8, axis=1))


def unpack(memory):
    u8, u16, float32 = memory.u8, memory.u16, memory.float32
    half_of_bits, float_of_bits = memory.half_of_bits, memory.float_of_bits
    point, high = memory.table(grids.iq1_s()), fields.plane(memory, 32, 1, 4)

    def scale(address):
        low = (u16(address + 48) >> 12) | ((u16(address + 50) >> 12) << 4)
        return half_of_bits(low | ((u16(address + 52) >> 12) << 8) | ((u16(address + 54) >> 12) << 12))

    d = memory.function(scale)

    def element(address, index):
        lane, group = index >> 3, index >> 4
        code = high(address, lane)
        number = u8(address + lane) | ((code & 7) << 8)
        eighths = 8 * point((number << 3) + (index & 7)) + 1 - 2 * (code >> 3)
        step = (u16(address + 48 + ((group >> 2) << 1)) >> (3 * (group & 3))) & 7
        return d(address) * float32(2 * step + 1) * (float32(eighths) * float_of_bits(0x3E000000))

    return element


def _scales(v, p):
    parts = [v.b.zext(v.load(v.at(p, 48 + 2 * k), v.int16), v.int32) for k in range(4)]
    parts = [v.b.lshr(v.b.and_(part, v.const(v.int32, 0xF000)), v.const(v.int32, 12 - 4 * k)) for k, part in enumerate(parts)]
    bits = v.b.or_(v.b.or_(parts[0], parts[1]), v.b.or_(parts[2], parts[3]))
    step = v.splat(v.half_of(v.b.trunc(bits, v.int16)), 16)
    words = v.pick(v.load(v.at(p, 48), v.words4), [k // 4 for k in range(16)])
    return odd_scales(v, v.ints(v.b.lshr(words, v.vector(words.type, [0, 3, 6, 9] * 4))), step, 0.125, bits=3)


def _indices(v, p):
    high = nibbles_in_turn(v, v.load(v.at(p, 32), v.bytes16))
    top = v.b.shl(v.words(v.b.and_(high, v.const(high.type, 7))), v.const(v.words32, 8))
    return v.b.or_(v.words(v.load(p, v.bytes32)), top)


def _group(v, p, reader, indices):
    scales, high = _scales(v, p), v.b.zext(v.load(v.at(p, 32), v.words8), v.longs8)
    points = points_of(reader, eighths(), 8, indices)

    def codes(i, count):
        """OFFSET more than the eighths: a point's eight, and one up or down."""
        own = v.slice(high, i % 2 * 4, 4 * count)
        down = v.b.and_(own, v.const(own.type, 8 << i // 2 * 4))
        up = v.b.icmp_unsigned("==", down, v.const(down.type, 0))
        shifts = v.masked(up, v.int64, 0x0202020202020202)
        return v.b.or_(points(i, count), v.b.bitcast(shifts, v.bytes(32 * count)))

    return Group(scales, None, codes, bias=OFFSET)


def _combed(v, pointers):
    rows = (pointers * 2)[:2]
    octets, high = combed.low_bytes(v, rows), combed.high_bits(v, [v.at(p, 32) for p in rows])
    quads = [v.b.bitcast(v.b.zext(v.load(v.at(p, 32), v.words8), v.longs8), v.bytes64) for p in pointers]
    downs = [v.permutes.bits(quad, [4 * k + 3 for k in range(4) for _ in (0, 1)] * 8) for quad in quads]
    shifts = [v.b.select(down, v.const(v.bytes64, -1), v.const(v.bytes64, 1)) for down in downs]
    return combed.ternary_points(v, grids.iq1_s(), octets, high, range(0, 32, 4), [_scales(v, p) for p in pointers], more=shifts)


LANES = Large(56, _group, indices=_indices, gathers=_indices, combed=_combed)


def _table():
    """Points shifted up."""
    return bytes(point | 2 for point in eighths())


def _fragment(ptx, base, function):
    """A lane reads the indices of two groups of 32."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point, join = ptx.words(_table(), 2), function(codebook.halves(ptx))

    def place(row, step, t):
        return row + (56 * step + t)

    def load_head(at, step, t, last, wanted, raw, o):
        raw[o], raw[o + 1] = ptx.ldg64_if(at - t, 48, wanted)
        raw[o + 2], raw[o + 3] = ptx.ldg64_if(at - t, 32, wanted)
        raw[o + 4], raw[o + 5] = ptx.ldg64_if(at - t, 40, wanted)
        raw[o + 6], raw[o + 7] = ptx.ldg64_if(at + 7 * t, 0, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        pass

    def codes(raw, head, o, c, j, t, shift):
        four = uint32(raw[head + 2 + 2 * c + (j >> 1)] >> uint32(16 * (j & 1) + 4 * t))
        indices = ptx.shfl_four(raw[head + 6 + (j & 1)], int32(2 * c + (j >> 1)))
        low = ptx.prmt(indices, uint32(0), uint32(0x4440 + t))
        a, b = point(uint32(uint32(uint32(four & uint32(7)) * uint32(256)) + low))
        down = uint32(uint32(uint32(four >> uint32(2)) & uint32(2)) * uint32(0x01010101))
        return join(uint32(a ^ down), uint32(b ^ down), uint32(0), uint32(0))

    def scales(raw, head, t, part):
        first, second = raw[head], raw[head + 1]
        low = uint32(uint32(uint32(first >> uint32(12)) & uint32(15)) | uint32(uint32(first >> uint32(28)) << uint32(4)))
        high = uint32(uint32(uint32(second >> uint32(12)) & uint32(15)) | uint32(uint32(second >> uint32(28)) << uint32(4)))
        d = float32(ptx.h2f_lo(uint32(low | uint32(high << uint32(8)))) * float32(0.125))
        six = uint32(raw[head + part] >> uint32(16 * (t >> 1) + 6 * (t & 1)))
        s0 = float32(d * float32(int32(2 * int32(six & uint32(7)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(uint32(six >> uint32(3)) & uint32(7)) + 1)))
        return s0, s1, float32(s0 * float32(-OFFSET)), float32(s1 * float32(-OFFSET))

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 8, 2, 0, _fragment, planes=4, parts=2, offset=OFFSET, tiled=False, table=_table, heavy=True)


def _shifted():
    """Codes of the points shifted up, then of those shifted down."""
    words = memoryview(nibbles()).cast("I")
    return b"".join((4 * word + up).to_bytes(4, "little") for up in (0x11111111, 0) for word in words)


def _stream(ptx, function):
    """A code is four times the coordinate, a half more or less: 4 * (coordinate + 1) and 1 or 0, less 9/2. High halves of bytes
    stay in place."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32
    point = function(entries_of_bytes(ptx, 0))

    def head(at, t, raw, o):
        raw[o], raw[o + 1] = ptx.at64(int32(at + 48))

    def load(at, p, t, raw, o):
        raw[o] = ptx.at32(int32(at + 16 * p + 4 * t))
        raw[o + 1] = ptx.at16(int32(at + 32 + 8 * p + 2 * t))

    def halves(raw, o, k):
        """Eight halves of codes of the point k of four."""
        high = uint32(raw[o + 1] << uint32(8 - 4 * k)) if k < 3 else uint32(raw[o + 1] >> uint32(4))
        return point(raw, raw[o], k, uint32(high & uint32(0xF00)))

    halves = function(halves)

    def codes(raw, head, o, p, i, t):
        first, second, low, high = halves(raw, o, 2 * i), halves(raw, o, 2 * i + 1), uint32(0x0F0F0F0F), uint32(0xF0F0F0F0)
        return uint32(first & low), uint32(second & low), uint32(first & high), uint32(second & high)

    def scales(raw, head, o, p, t):
        tops = uint32(
            ptx.prmt(raw[head], raw[head + 1], uint32(0x7531)) & uint32(0xF0F0F0F0)
        )  # bits of the half scale
        tops = uint32(uint32(tops >> uint32(4)) | uint32(tops >> uint32(8)))
        d = float32(ptx.h2f_lo(ptx.prmt(tops, uint32(0), uint32(0x4420))) * float32(0.25 / 16))
        six = uint32(raw[head + p] >> uint32(16 * (t >> 1) + 6 * (t & 1)))
        s0 = float32(d * float32(int32(2 * int32(six & uint32(7)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(uint32(six >> uint32(3)) & uint32(7)) + 1)))
        return s0, s1, float32(0), float32(0)

    return head, load, codes, scales


STREAM = Stream(
    56, 2, 2, 2, _stream, order=codebook.HALVES, halves=True, offset=72, tables=((_shifted, 4096, 1),), powers=(0, 4, 0, 4)
)
