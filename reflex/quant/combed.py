"""Points of a table in the combed order (quant/lanes.py), for processors that permute bytes: AVX-512 VBMI, BITALG and GFNI.

A point has a byte for every four coordinates of three levels or two of eight, which permutations of registers find in a table. Bits
of such a byte and a bit of sign are the place of a code in a table of 64: unit k takes coordinate k of every four.
"""

from .lanes import Combed

SIGN = 1  # bit at which a byte of signs has unit 0's; unit 1's is the next
PAIRS = 2, 4, 0, 6  # bits at which a byte has levels of coordinates 0 to 3: nowhere a unit's sign
TRIPLES = 3, 3, 0, 0  # of coordinates 0 and 2 in a first byte, 1 and 3 in a second
EVEN = [0x7F, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01]  # seven signs, and an eighth that makes their number even: bits of each
HIGH_EVEN = [0xFE, 0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02]  # the same of signs from bit 1 up
BESIDE = [16 * lane + 8 * row + j for row in (0, 1) for lane in range(4) for j in range(8)]  # where 64 bytes have those of two rows


def beside(values):
    """Of each of two rows 32 things, eight of each in turn."""
    return [values[row][8 * lane + j] for lane in range(4) for row in (0, 1) for j in range(8)]


def _nibbles(starts):
    """Where the signs of four coordinates start, for the eight bytes of 32 weights: at each of four places and four further on."""
    return [(start + half - SIGN) % 64 for start in starts for half in (0, 4)] * 8


def signs_of_bytes(v, octets):
    """Of 64 bytes, whose first four of every eight have a sign for each of 32 weights."""
    return v.permutes.multishift(octets, _nibbles((0, 8, 16, 24)))


def signs_of_words(v, words):
    """Of 64 bytes of which every second one has the signs of 8 weights."""
    return v.permutes.multishift(words, _nibbles((8, 24, 40, 56)))


def _choices(levels, at, sign):
    """64 codes, 64 more than they count: by a level's number from bit `at` up and the sign at a bit."""
    known = [*levels, *[0] * (8 - len(levels))]
    wide = len(levels) > 3
    return [64 + (-1 if place >> sign & 1 else 1) * known[place >> at & (7 if wide else 3)] for place in range(64)]


def _codes(v, levels, starts, source):
    """Function of a Combed whose last parts are signs. source: function (unit, *other parts) -> the bytes with its coordinates."""
    size = 3 if len(levels) > 3 else 2
    codes = bytes(code for k in range(4) for code in _choices(levels, starts[k], SIGN + k))

    def unit(k, parts):
        table = v.load(v.at(v.permutes.in_memory(codes), 64 * k), v.bytes64)
        places = [v.permutes.merged((1 << size) - 1 << starts[k], source(k, *points), signs) for *points, signs in parts]
        return [v.permutes.permuted(table, place) for place in places]

    return unit


def _joined(v, first, last):
    """Bytes of points of two rows beside each other, by turns: of each row."""
    places = [[k + 64 * half for k in own for half in (0, 1)] for own in (BESIDE[:32], BESIDE[32:])]
    return [v.shuffle(first, last, own) for own in places]


def points_of_eight(v, table, octets, masks, scales, signs):
    """A Combed of points of eight coordinates of three levels. octets: the lowest 8 bits of indices, as the 32 words of one row or
    the 64 bytes of two rows `beside` each other; masks: their further bits; signs: of each row, as signs_of_bytes gives them."""
    levels = sorted(set(table))
    digits = [levels.index(level) << PAIRS[k % 4] for k, level in enumerate(table)]
    packed = bytes(sum(digits[k : k + 4]) for k in range(0, len(digits), 4))
    if len(scales) == 1:
        words = [v.b.bitcast(v.permutes.words(packed, octets, masks), v.bytes64)]
    else:
        words = _joined(v, *(v.permutes.octets(packed[k::2], octets, masks) for k in (0, 1)))

    def source(k, word):
        whole = v.b.bitcast(word, v.words32)
        return v.b.bitcast(v.b.lshr(whole, v.const(whole.type, 4)), word.type) if k == 3 else word

    codes = _codes(v, levels, (*PAIRS[:3], PAIRS[3] - 4), source)
    return Combed(scales, list(zip(words, signs, strict=True)), codes)


def points_of_four(v, table, octets, masks, scales, signs):
    """The same of points of four coordinates of eight levels. octets and masks are of each row, 64 bytes with the lowest 8 bits of
    indices and their further bits."""
    levels = sorted(set(table))
    digits = [levels.index(level) << TRIPLES[k % 4] for k, level in enumerate(table)]
    tables = [bytes(a + b for a, b in zip(digits[k::4], digits[k + 2 :: 4], strict=True)) for k in (0, 1)]
    looked_up = [[v.permutes.octets(table, own, bits) for table in tables] for own, bits in zip(octets, masks, strict=True)]
    parts = [[*pair, sign] for pair, sign in zip(looked_up, signs, strict=True)]
    return Combed(scales, parts, _codes(v, levels, TRIPLES, lambda k, first, last: (first, last)[k % 2]))


def low_bytes(v, pointers):
    """32 bytes of each of two rows, beside each other."""
    return v.shuffle(*(v.load(p, v.bytes32) for p in pointers), beside([range(32), range(32, 64)]))


def high_bits(v, pointers):
    """Of 16 bytes of each of two rows, four at the start of every 64 bits, beside each other."""
    places = [row + lane for lane in range(4) for row in (0, 4) for _ in (0, 1)]
    return v.b.bitcast(v.shuffle(*(v.load(p, v.ints4) for p in pointers), places), v.bytes64)


class Runs:
    """Of a table of points of eight coordinates, in ascending order with the last one counting most, those that have the same last
    four: what they are, where they are, and every point's first four. Four coordinates are a byte; tables are filled up to 128."""

    def __init__(self, table):
        digits = [(level + 1) % 256 for level in table]
        halves = [sum(digit << PAIRS[k] for k, digit in enumerate(digits[i : i + 4])) for i in range(0, len(digits), 4)]
        first, last = halves[::2], halves[1::2]
        starts = [k for k in range(len(last)) if not k or last[k] != last[k - 1]]
        self.first = bytes(first)
        self.last = bytes(last[k] for k in starts).ljust(128, b"\0")
        self.ends = bytes(k % 256 for k in [*starts[1:], 0]).ljust(128, b"\0")
        self.numbers = bytes(sum(start <= k for start in starts[1:]) for k in range(0, len(last), 8))  # of every eighth point's run


def ternary_points(v, table, octets, high, starts, scales, minimums=None, more=None):
    """The same of points of eight coordinates -1, 0 and 1, in eighths; a run of the table has 9 to 120 points. octets: of two
    rows beside each other, or of one row twice; high: as high_bits gives them, three more bits of eight indices from each start on;
    more: of each row bytes that are added to its codes."""
    runs, read = Runs(table), v.permutes.octets
    masks = [v.permutes.bits(high, [start + bit for start in starts] * 8) for bit in range(3)]
    eighths = v.b.bitcast(v.b.lshr(v.b.bitcast(octets, v.words32), v.const(v.words32, 3)), octets.type)
    eighths = v.permutes.merged(0xE0, v.permutes.multishift(high, [(start - 5) % 64 for start in starts] * 8), eighths)
    first, number = read(runs.first, octets, masks), read(runs.numbers, eighths, [])
    behind = v.b.sub(octets, read(runs.ends, number, []))
    inside = v.b.icmp_signed("<", behind, v.const(behind.type, 0))
    number = v.b.select(inside, number, v.b.add(number, v.const(number.type, 1)))
    words = _joined(v, first, read(runs.last, number, []))[: len(scales)]
    columns = 56 ^ 64, 56 ^ 72  # of the matrix that makes 64 - 8, 64 and 64 + 8 of two bits
    matrices = [[sum((columns[j] >> bit & 1) << at + j for j in (0, 1)) for bit in range(7, -1, -1)] for at in PAIRS]

    def unit(k, parts):
        codes = [v.permutes.affine(word, matrices[k], 56) for word, *_ in parts]
        return [v.b.add(code, part[1]) if part[1:] else code for code, part in zip(codes, parts, strict=True)]

    parts = zip(words, more, strict=True) if more else ((word,) for word in words)
    return Combed(scales, [list(part) for part in parts], unit, minimums)
