"""TQ1_0: 256 values of -1, 0, 1 packed five to a byte, one half scale.

    0    u8[32]   values 0-159: digit p of byte j is value 32 * p + j
    32   u8[16]   values 160-239: digit p of byte j is value 160 + 16 * p + j
    48   u8[4]    values 240-255: digit p of byte j is value 240 + 4 * p + j; four digits only
    52   f16      scale d

A byte is a fraction of 256 in base 3, most significant digit first: digit p is floor(3 * (byte * 3**p mod 256) / 256).
value = d * (digit - 1)
"""

from . import fields
from .fragment import Fragment
from .lanes import TURNED, Combed, Group, Large
from .stream import Stream, unaligned

_POWERS = (1, 3, 9, 27, 81)
_PARTS = ((0, 32, 5), (32, 16, 5), (48, 4, 4))  # first byte, bytes, digits


def decode(blocks):
    """uint8 [n, 54] -> float32 [n, 256]."""
    import numpy as np

    powers = np.array(_POWERS, dtype="u1").reshape(1, 5, 1)
    parts = [(blocks[:, None, at : at + n] * powers[:, :d]).reshape(len(blocks), n * d) for at, n, d in _PARTS]
    digits = np.concatenate(parts, axis=1).astype("u2") * 3 >> 8
    return fields.f16(blocks, 52) * (digits.astype("f4") - 1)


def unpack(memory):
    f16, u8, float32 = memory.f16, memory.u8, memory.float32
    power = memory.table(bytes(_POWERS))

    def element(address, index):
        if index < 160:
            byte, digit = index & 31, index >> 5
        elif index < 240:
            byte, digit = 32 + (index & 15), (index - 160) >> 4
        else:
            byte, digit = 48 + (index & 3), (index - 240) >> 2
        fraction = (u8(address + byte) * power(digit)) & 255
        return f16(address + 52) * float32(((fraction * 3) >> 8) - 1)

    return element


def _group(v, p):
    scales = v.half_splat(v.at(p, 52), 16)
    return Group(scales, None, _multiplied(v, p), bias=1)


def _combed(v, pointers):
    """Codes are 64 x digit; a matrix for every 64 bits brings two bits to the front."""
    steps, places = [v.half_splat(v.at(p, 52), 16) for p in pointers], _places()
    matrices = [row for start in _STARTS for row in (2 << start, 1 << start, 0, 0, 0, 0, 0, 0)]

    def codes(k, parts):
        return [v.permutes.affine(v.permutes.chosen(*pair, places[k::4]), matrices, 0) for pair in parts]

    scales = [v.b.fmul(step, v.const(step.type, 1 / 64)) for step in steps]
    return Combed(scales, [_looked_up(v, p) for p in pointers], codes)


def _multiplied(v, p):
    """Function (unit, count) -> digits, from the 64 bits that a unit has of each group of 32 values: eight bytes with their digits
    0 to 4 one after another, eight of the second part with two digits or one, and of the last part twice the same four bytes."""

    def octet(k, m):
        if m < 5:
            return v.load(v.at(p, 8 * k), v.int64)
        if m < 7 or k < 2:
            return v.load(v.at(p, 32 + 8 * (k % 2)), v.int64)
        return v.b.mul(v.b.zext(v.load(v.at(p, 48), v.int32), v.int64), v.const(v.int64, 1 + (1 << 32)))

    def codes(i, count):
        k, first = i // 2, i % 2 * 4
        lanes = range(first, first + 4 * count)
        starts = [first] + [m for m in (5, 7) if m in lanes and (m < 7 or k > 1)]
        source = v.runs([octet(k, m) for m in starts], [m - first for m in starts], 4 * count)
        powers = [_POWERS[digit] for m in lanes for digit in _digits_at(k, m)]
        return _digits_of(v, v.b.bitcast(source, v.bytes(32 * count)), powers)

    return codes


_DIGITS = [[(byte * power & 255) * 3 >> 8 for power in _POWERS] for byte in range(256)]
_FOUR = bytes(sum(digit << 2 * j for j, digit in enumerate(row[:4])) for row in _DIGITS)  # of a byte: digit j from bit 2 j up
_REST = bytes(row[4] | row[0] << 2 | row[2] << 6 for row in _DIGITS)  # digit 4, and others where neighbours of theirs are in _FOUR
_STARTS = 0, 2, 4, 6, 0, 2, 6, 0  # bit from which on a digit of each 32 values is taken


def _places():
    """Of each value the place of its digit among the 64 bytes of digits 0 to 3 and the 64 of the rest behind them."""
    places = [64 * (k > 3) + j for k in range(5) for j in range(32)]
    places += [64 * rest + 32 + j for rest in (1, 0, 1, 0, 1) for j in range(16)]
    return [*places, *range(48, 64)]


def _looked_up(v, p):
    """Digits of 64 bytes, the first four in one vector and the rest in another. Of the last part each digit has its own copy of the
    four bytes, in which it is moved to the lowest bits."""
    last = v.splat(v.load(v.at(p, 48), v.int32), 16)
    raw = v.b.select(v.lane_mask(16, 0xE000), last, v.b.bitcast(v.permutes.first_bytes(p, 52), v.ints16))
    raw = v.b.bitcast(raw, v.bytes64)
    four, rest = v.permutes.octets(_FOUR, raw, []), v.permutes.octets(_REST, raw, [])
    four = v.b.lshr(v.b.bitcast(four, v.ints16), v.vector(v.ints16, [0] * 13 + [2, 4, 6]))
    return v.b.bitcast(four, v.bytes64), rest


def _digits_at(k, m):
    """Which digit each two of values 8 k to 8 k + 7 of group m are."""
    if m < 5:
        return [m] * 4
    if m < 7:
        return [2 * (m - 5) + k // 2] * 4
    return [4] * 4 if k < 2 else [2 * k - 4] * 2 + [2 * k - 3] * 2


def _digits_of(v, source, powers):
    """Of each byte the digit that `powers`, one per two bytes, brings to the front: two multiplications of the even and of the odd
    bytes as high halves of words; the second has the digit above its lower 16 bits, or 8 further up."""
    b = v.b
    words = b.bitcast(source, v.words_in(source))
    powers = v.vector(words.type, powers)
    even, odd = b.shl(words, v.const(words.type, 8)), b.and_(words, v.const(words.type, 0xFF00))
    even = v.high_product(b.mul(even, powers), 3)
    odd = v.high_product(b.mul(odd, powers), 3 << 8)
    return b.bitcast(b.or_(even, b.and_(odd, v.const(words.type, 0xFF00))), source.type)


LANES = Large(54, _group, combed=_combed, order=TURNED)


def _digits(ptx):
    """Function (word of four bytes, power of 3) -> 256 times a digit of each byte, as registers (0, 2) and (1, 3)."""
    uint32 = ptx.u32

    def digits(word, power):
        byte, top = uint32(0x00FF00FF), uint32(0x03000300)
        even = uint32(uint32(uint32(word & byte) * power) & byte)
        odd = uint32(uint32(uint32(uint32(word >> uint32(8)) & byte) * power) & byte)
        return uint32(uint32(even * uint32(3)) & top), uint32(uint32(odd * uint32(3)) & top)

    return digits


def _power(ptx):
    """Function (unit below 7, lane) -> the power of 3 that brings the digit to the front."""
    uint32 = ptx.u32

    def power_of(unit, t):
        power = uint32(1)
        if unit == 1:
            power = uint32(3)
        if unit == 2 or unit == 6:
            power = uint32(9)
        if unit == 3:
            power = uint32(27)
        if unit == 4:
            power = uint32(81)
        if unit >= 5 and t >= 2:
            power = uint32(power * uint32(3))
        return power

    return power_of


def _fragment(ptx, base, function):
    """Units 0 to 4 are the digits of the first 32 bytes; 5, 6 and half of 7 those of the next 16; the rest of the last four."""
    uint32, float32 = ptx.u32, ptx.f32
    digits, power_of = function(_digits(ptx)), function(_power(ptx))

    def place(row, step, t):
        return row + 54 * step

    def load_head(at, step, t, last, wanted, raw, o):
        start = at & -4
        for i in range(3):
            raw[o + i] = ptx.ldg32_if(start + 8 * t, 4 * i, wanted)
            raw[o + 3 + i] = ptx.ldg32_if(start + 8 * (t & 1), 32 + 4 * i, wanted)
        raw[o + 6] = ptx.ldg32_if(start, 48, wanted)
        raw[o + 7] = ptx.ldg32_if(start, 52, wanted)
        raw[o + 8] = ptx.ldg16_if(at, 52, wanted)

    def load_chunk(at, step, t, last, c, wanted, raw, o):
        pass

    def codes(raw, head, o, c, j, t, shift):
        unit = 4 * c + j
        first = head + 3
        if unit < 5:
            first = head
        a, b = ptx.shf_r(raw[first], raw[first + 1], shift), ptx.shf_r(raw[first + 1], raw[first + 2], shift)
        power = power_of(unit, t)
        next_power = power
        if unit == 7:
            power, next_power = uint32(81), uint32(81)
            if t >= 2:
                a = ptx.shf_r(raw[head + 6], raw[head + 7], shift)
                b = a
                power = uint32(1 + 8 * (t & 1))
                next_power = uint32(3 * power)
        w0, w1 = digits(a, power)
        w2, w3 = digits(b, next_power)
        return w0, w1, w2, w3

    def scales(raw, head, t, part):
        d = ptx.h2f_lo(raw[head + 8])
        s = float32(d * float32(1 / 256))
        return s, s, float32(-d), float32(-d)

    return place, load_head, load_chunk, codes, scales


FRAGMENT = Fragment(256, 9, 2, 0, _fragment, planes=4, offset=256, tiled=False)


def _digits_of_bytes(ptx):
    """Functions of four bytes: digit k, a literal, and digit t."""
    uint32 = ptx.u32

    def digits(first, k):
        byte = uint32(0x00FF00FF)
        even, odd = uint32(first & byte), ptx.prmt(first, uint32(0), uint32(0x4341))
        for _ in range(k):
            even, odd = uint32(uint32(even * uint32(3)) & byte), uint32(uint32(odd * uint32(3)) & byte)
        return ptx.prmt(uint32(even * uint32(3)), uint32(odd * uint32(3)), uint32(0x7351))

    def last(first, t):
        byte, power = uint32(0x00FF00FF), uint32(uint32(uint32(0x1B090301) >> uint32(8 * t)) & uint32(255))  # 1, 3, 9, 27
        even = uint32(uint32(uint32(first & byte) * power) & byte)
        odd = uint32(uint32(ptx.prmt(first, uint32(0), uint32(0x4341)) * power) & byte)
        return ptx.prmt(uint32(even * uint32(3)), uint32(odd * uint32(3)), uint32(0x7351))

    return digits, last


def _stream(ptx, function):
    """A lane has all five digits of eight of the first 32 bytes and of four of the next 16, and one digit of the last four bytes.
    Times 3, a byte's digit comes out above it and the next ones stay: even and odd bytes of a word by themselves, since digits need
    the space."""
    int32, float32 = ptx.i32, ptx.f32
    read, word = map(function, unaligned(ptx, 2))
    read_one, word_of_one = map(function, unaligned(ptx, 1))

    digits, last = map(function, _digits_of_bytes(ptx))

    def head(at, t, raw, o):
        raw[o] = ptx.at16(int32(at + 52))

    def load(at, p, t, raw, o):
        if p == 0:  # what part 1 has is there then
            read(int32(at + 8 * t), raw, o)
            read_one(int32(at + 32 + 4 * t), raw, o + 4)
            read_one(int32(at + 48), raw, o + 7)

    def nth(raw, o, n, t):
        """Word n of both parts: of all 64 weights of a lane."""
        if n < 10:
            return digits(word(raw, o, n // 5, 0), n % 5)
        if n < 15:
            return digits(word_of_one(raw, o + 4, 0, 0), n - 10)
        return last(word_of_one(raw, o + 7, 0, 0), t)

    nth = function(nth)

    def codes(raw, head, o, p, j, t):
        return nth(raw, o, 8 * p + 2 * j, t), nth(raw, o, 8 * p + 2 * j + 1, t)

    def scales(raw, head, o, p, t):
        return ptx.h2f_lo(raw[head]), float32(0)

    return head, load, codes, scales


def _piece(k, q):
    """Where word n of a lane lies: digit by digit, 32 bytes, 16, and 4."""
    n, t = 8 * (k >> 2) + q, k & 3
    if n < 5:
        return 8 * n + 2 * t
    if n < 10:
        return 8 * (n - 5) + 2 * t + 1
    if n < 15:
        return 40 + 4 * (n - 10) + t
    return 60 + t


STREAM = Stream(54, 2, 1, 10, _stream, offset=1, piece=_piece)
