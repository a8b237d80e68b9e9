"""Codes that are places in a table, as float16 pairs for tensor cores: sixteen levels, and points of a grid with signs.

Called by the fragments (fragment.py) of the formats that have such codes. Halves are 2**-24 times a whole number, so one
byte of a table is the low byte of a half, and a sign its high byte.
"""

from . import grids

EVEN, ODD = 0x6240, 0x7351  # for prmt: bytes 0 and 2, or 1 and 3, of a low and a high word as two halves


def sixteen(ptx, levels):
    """Function (word of eight codes of 4 bits, plane j) -> the low (0) or high (1) halves of its bytes as levels:
    registers (0, 2) and (1, 3). levels: 16 bytes, unsigned."""
    uint32 = ptx.u32
    first, second, third, fourth = (int.from_bytes(levels[i : i + 4], "little") for i in (0, 4, 8, 12))

    def lookup(word, j):
        place, upper = uint32(word & uint32(0x77777777)), uint32(uint32(word >> uint32(1)) & uint32(0x44444444))
        upper = uint32(upper | uint32(0x32103210))  # which of two candidates: below or above 8
        x = ptx.prmt(
            ptx.prmt(uint32(first), uint32(second), place), ptx.prmt(uint32(third), uint32(fourth), place), upper
        )  # both halves of bytes 0 and 1, then of bytes 2 and 3
        place, upper = uint32(place >> uint32(16)), uint32(upper >> uint32(16))
        y = ptx.prmt(ptx.prmt(uint32(first), uint32(second), place), ptx.prmt(uint32(third), uint32(fourth), place), upper)
        byte = uint32(0x00FF00FF)
        return (
            uint32(ptx.prmt(x, y, uint32(0x0400 + 0x0101 * j)) & byte),
            uint32(ptx.prmt(x, y, uint32(0x0602 + 0x0101 * j)) & byte),
        )

    return lookup


def signs_of_seven(ptx):
    """Function (7 sign bits) -> two words with bit 7 of each byte a sign of eight; the eighth makes their number even."""
    uint32 = ptx.u32

    def spread(bits):
        rest = uint32(bits >> uint32(4))
        odd = uint32(uint32(0x6996 << 3) >> uint32(uint32(bits ^ rest) & uint32(15)))  # parities of four bits
        rest = uint32(rest | uint32(odd & uint32(8)))
        top = uint32(0x80808080)
        return uint32(uint32(bits * uint32(0x10204080)) & top), uint32(uint32(rest * uint32(0x10204080)) & top)

    return spread


def signs_of_eight(ptx):
    """Function (8 sign bits) -> the same."""
    uint32 = ptx.u32

    def spread(bits):
        top, rest = uint32(0x80808080), uint32(bits >> uint32(4))
        return uint32(uint32(uint32(bits & uint32(15)) * uint32(0x10204080)) & top), uint32(uint32(rest * uint32(0x10204080)) & top)

    return spread


def halves(ptx):
    """Function (two words of eight bytes, two words of their high bytes) -> the four registers."""
    uint32 = ptx.u32

    def join(a, b, high_a, high_b):
        even, odd = uint32(EVEN), uint32(ODD)
        return ptx.prmt(a, high_a, even), ptx.prmt(a, high_a, odd), ptx.prmt(b, high_b, even), ptx.prmt(b, high_b, odd)

    return join


# ---- bytes for products of integers (stream.py) ----------------------------------------------------------
MAGNITUDES = 8, 25, 43
HALVES = (0, 2, 1, 3, 4, 6, 5, 7)  # order of words where points have four values in low halves of bytes and four in high ones


def places(points):
    """Points of a grid of three magnitudes as words: the place of coordinate i in half byte i."""
    levels = [MAGNITUDES.index(level) for level in points]
    words = (sum(level << 4 * i for i, level in enumerate(levels[at : at + 8])) for at in range(0, len(levels), 8))
    return b"".join(word.to_bytes(4, "little") for word in words)


def sign_places(patterns=None):
    """Patterns of eight signs, those with an even number of them if none are given, as words: in half byte i 4 or 0."""
    words = (sum((byte >> i & 1) << 4 * i + 2 for i in range(8)) for byte in patterns or grids.signs())
    return b"".join(word.to_bytes(4, "little") for word in words)


def placed(ptx):
    """Function (places of eight magnitudes, 4 more for negative ones) -> two words of signed bytes."""
    uint32 = ptx.u32
    first, second, third = MAGNITUDES
    plus = first | second << 8 | third << 16
    minus = 256 - first | (256 - second) << 8 | (256 - third) << 16

    def bytes_of(entry):
        return (
            ptx.prmt(uint32(plus), uint32(minus), entry), ptx.prmt(uint32(plus), uint32(minus), uint32(entry >> uint32(16)))
        )  # fmt: skip

    return bytes_of


def sevens(ptx):
    """Function (word) -> its four lowest groups of seven bits, as bytes."""
    uint32 = ptx.u32

    def bytes_of(word):
        first, second = uint32(word & uint32(0x7F)), uint32(uint32(word << uint32(1)) & uint32(0x7F00))
        third, fourth = uint32(uint32(word << uint32(2)) & uint32(0x7F0000)), uint32(uint32(word << uint32(3)) & uint32(0x7F000000))
        return uint32(uint32(first | second) | uint32(third | fourth))

    return bytes_of


def quarters(ptx):
    """Function (four bytes of sign bits, k) -> the low four of byte k and its high four."""
    uint32 = ptx.u32

    def halves_of(signs, k):
        nibble, byte = uint32(0x0F0F0F0F), uint32(0x4440 + k)
        low, high = uint32(signs & nibble), uint32(uint32(signs >> uint32(4)) & nibble)
        return ptx.prmt(low, uint32(0), byte), ptx.prmt(high, uint32(0), byte)

    return halves_of


def odd_pair(ptx):
    """Function (half d, two codes of 4 bits) -> what `scales` of a format with halves returns: d * (2 * code + 1) / 8."""
    int32, uint32, float32 = ptx.i32, ptx.u32, ptx.f32

    def scales(half, codes):
        d = float32(ptx.h2f_lo(half) * float32(0.125))
        s0 = float32(d * float32(int32(2 * int32(codes & uint32(15)) + 1)))
        s1 = float32(d * float32(int32(2 * int32(codes >> uint32(4)) + 1)))
        return s0, s1, float32(0), float32(0)

    return scales


def levels(ptx, table):
    """Function (word of eight codes of 4 bits) -> the levels of its lowest four and of its highest four, in their order."""
    uint32 = ptx.u32
    first, second, third, fourth = (int.from_bytes(table[i : i + 4], "little") for i in (0, 4, 8, 12))

    def lookup(word):
        place, upper = uint32(word & uint32(0x77777777)), uint32(uint32(word >> uint32(1)) & uint32(0x44444444))
        upper = uint32(upper | uint32(0x32103210))  # which of two candidates: below or above 8
        low, high = ptx.prmt(uint32(first), uint32(second), place), ptx.prmt(uint32(third), uint32(fourth), place)
        x = ptx.prmt(low, high, upper)
        place, upper = uint32(place >> uint32(16)), uint32(upper >> uint32(16))
        low, high = ptx.prmt(uint32(first), uint32(second), place), ptx.prmt(uint32(third), uint32(fourth), place)
        return x, ptx.prmt(low, high, upper)

    return lookup
