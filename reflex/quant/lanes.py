"""How a block format feeds vector code: 256 weights at a time as eight rows of 32 byte codes with float scales.

A weight is scale x code + minimum, with one scale and minimum per 16 codes (formats with one per 32 repeat it). `v` is the
vector builder of the build side (reflex/kernels/vector.py); nothing here imports it, so a format file stays plain data
and arithmetic. A format file binds the name LANES to one of the four records below; kernels find it by enumerating the
folder. Kernels ask for the codes of one sub-block, or of two neighbours (an even one first) where registers are wide.

Formats that can give their codes in any order give them in the turned one: unit 2 k + h of 32 codes has codes 8 k to 8 k + 7 of
sub-blocks 4 h to 4 h + 3. Then units 0 and 2, 4 and 6, 1 and 3, 5 and 7 belong to the same scales lane by lane, and their products
add up as integers: half of the arithmetic around a dot product.
Where a processor permutes bytes they give them in the combed order: unit k of 64 codes has every fourth one, from code k on. Lane
by lane all four units belong to the same scales, and their products are one integer.
"""

GROUP = 256  # weights per group
SUB = 32  # weights per sub-block
NATURAL, TURNED, COMBED = "natural", "turned", "combed"  # orders of codes


class Group:
    """One group's operands: `scales` holds 16 floats, one per 16 codes, `minimums` likewise or None; `codes(i, count)`
    gives the 32 x count bytes of the sub-blocks from i on. Codes that stand for code - bias, a power of two, have no minimums; in
    the turned order they may, and the bias is any number below 128.
    signs: of codes in the turned order, those that count negative: a bit for each in that order, 32 bytes; None: none does."""

    def __init__(self, scales, minimums, codes, bias=0, signs=None):
        self.scales = scales
        self.minimums = minimums
        self.codes = codes
        self.bias = bias
        self.signs = signs


class Combed:
    """Operands of a group in the combed order, of one row or of two side by side. scales: of each row 16 floats, one per 16 codes;
    minimums: the same, or None; parts: of each row vectors that were looked up; codes(unit, parts): of each row the 64 bytes of a
    unit, each 64 more than it counts, made of its parts."""

    def __init__(self, scales, parts, codes, minimums=None):
        self.scales = scales
        self.minimums = minimums
        self.parts = parts
        self.codes = codes


class Small:
    """Blocks of 32: eight blocks make a group, and rows may end in the middle of one.

    scales(v, pointer, count): float32 scales of `count` blocks; half floats at byte scale_at where it is not given.
    minimum_at: byte offset of a half float behind that scale (None: the minimum is -bias x scale).
    signed: codes are signed bytes.  codes(v, pointers): the codes of the blocks at those pointers, end to end.
    """

    width = 1  # sub-blocks per block
    indices, order = None, NATURAL

    def __init__(self, nbytes, codes, scale_at=0, minimum_at=None, bias=0, signed=False, scales=None):
        self.nbytes = nbytes
        self.group_bytes = 8 * nbytes
        self.read = codes
        self.scale_at = scale_at
        self.minimum_at = minimum_at
        self.bias = bias
        self.signed = signed
        self.scales = scales or self._halves

    def _halves(self, v, p, count):
        return v.halves(v.at(p, self.scale_at), self.nbytes, count)

    def group(self, v, p):
        return self.part(v, p, 8)

    def part(self, v, p, count):
        """Group of the `count` blocks from p on."""
        if self.minimum_at is not None:  # the two halves lie side by side
            scale, minimum = (v.twice(x) for x in v.half_pairs(v.at(p, self.scale_at), self.nbytes, count))
        else:
            scale, minimum = v.twice(self.scales(v, p, count)), None
        return Group(scale, minimum, lambda i, n: self.read(v, [v.at(p, (i + k) * self.nbytes) for k in range(n)]), self.bias)


class Wide:
    """Blocks of 64 or 128, `width` sub-blocks each: rows may end in the middle of a group, at the end of a block.

    part(v, pointer, count) -> Group of the `count` sub-blocks, whole blocks, from there on. whole(v, pointer) -> Group of a whole
    group in the combed order, where a format can: codes(unit, h, halves) are bytes of one or both halves of a unit, from h on."""

    signed = False
    indices = None

    def __init__(self, nbytes, width, part, whole=None):
        self.nbytes = nbytes
        self.width = width
        self.group_bytes = 8 // width * nbytes
        self.part = part
        self.order = COMBED if whole else NATURAL
        self.group = whole or (lambda v, p: part(v, p, 8))


class Large:
    """Super-blocks of 256: one block is one group and rows are whole groups. read(v, pointer) -> Group.

    Where codes are points of a table: indices(v, pointer): all indices of the group as lanes of 8 or 16 bits; scalars(v, pointer):
    function (first, count) -> indices as int64 values, where bytes of the block are indices by themselves. read then gets a
    reader of tables and one of these as further arguments, for `points_of`; its codes are in the turned order.
    gathers(v, pointer): indices as a vector of 16-bit lanes, or of points of four bytes (64 bytes, int64 of ninth bits or None),
    where processors that gather fast have a kernel that does. combed(v, pointers) -> Combed: what the kernel reads that processors
    have that permute bytes, of one row's group or those of two rows."""

    width = 8

    def __init__(
        self, nbytes, read, signed=False, indices=None, scalars=None, gathers=None, combed=None, order=NATURAL
    ):  # fmt: skip
        self.nbytes = self.group_bytes = nbytes
        self.group = read
        self.signed = signed
        self.indices = indices
        self.scalars = scalars
        self.gathers = gathers
        self.combed = combed
        self.order = order if indices is None else TURNED


class Plain:
    """Floating-point weights. load(v, pointer) gives the eight float32 values at a pointer, load_one a single one."""

    def __init__(self, nbytes, load, load_one):
        self.nbytes = nbytes
        self.load = load
        self.load_one = load_one


def raised(table, by):
    """Signed bytes plus a number, as unsigned ones."""
    return bytes(code + by & 255 for code in table)


def points_of(reader, table, size, indices):
    """Function (i, count) -> the bytes of the turned units from i on, points of `size` bytes from a table; reader, indices: as
    Large hands them over."""
    return reader.units(table, size, indices)


def turned_octets(v, octets):
    """Of 32 bytes, one for 8 weights each, those of the turned units one after another: as a Group has its signs."""
    return v.pick(octets, [4 * m + k for k in range(4) for m in range(8)])


def crumbs(v, p):
    """Codes of two bits of a group of 64 bytes at p: 32 bytes hold 128 values, four planes of 32."""
    quants = [v.load(v.at(p, 32 * half), v.bytes32) for half in (0, 1)]
    return lambda i, count: v.bit_planes(quants[i // 4], [2 * (i % 4 + k) for k in range(count)], 2, 0)


ODD = bytes(128 * (n.bit_count() & 1) for n in range(16))


def even_signs(v, signs):
    """As a Group has them, 32 bytes of signs: the seven lowest bits, and an eighth that makes the number of negative signs even.
    It is bit 7 itself, whatever that is, turned where all eight are odd."""
    pairs = v.b.bitcast(signs, v.words_in(signs))
    folded = v.b.bitcast(v.b.xor(pairs, v.b.lshr(pairs, v.const(pairs.type, 4))), signs.type)
    return turned_octets(v, v.b.xor(signs, v.lookup(ODD, v.low_nibbles(folded))))


def apart(v, value):
    """Each 32 of 256 bits at the start of 64, as 64 bytes."""
    return v.b.bitcast(v.b.zext(v.b.bitcast(value, v.ints8), v.longs8), v.bytes64)


def scales_and_signs(v, words, p, unit):
    """Of eight words, one for 32 weights, with four times seven sign bits from bit 0 up and a scale in the last four: scales
    times the half at p and `unit`, and signs as a Group has them."""
    words = v.twice(words) if v.subs == 2 else words
    count = words.type.count
    scales = odd_scales(v, v.b.lshr(words, v.const(words.type, 28)), v.half_splat(p, count), unit)
    octets = v.b.bitcast(words, v.bytes(4 * count))
    pairs = v.pick(octets, [count // 2 * k + start + i for k in range(8) for start in (0, 0, 1, 2) for i in (0, 1)])
    pairs = v.b.bitcast(pairs, v.words32)
    signs = even_signs(v, v.b.trunc(v.b.lshr(pairs, v.vector(pairs.type, [0, 7, 6, 5] * 8)), v.bytes32))
    return (scales if count == 16 else v.twice(scales)), signs


def nibbles_in_turn(v, packed):
    """Low half, high half of each byte."""
    return v.interleaved(v.low_nibbles(packed), v.high_nibbles(packed))


def odd_scales(v, codes, step, unit=1.0, bits=4):
    """unit x (2 code + 1) x step, for 32-bit lanes with codes in their lowest bits."""
    if v.subs == 2 and codes.type.count == 16:
        return v.b.fmul(v.float_levels([unit * (2 * (k % (1 << bits)) + 1) for k in range(16)], codes), step)
    codes = v.b.and_(codes, v.const(codes.type, (1 << bits) - 1))
    odd = v.signed_floats(v.b.or_(v.b.shl(codes, v.const(codes.type, 1)), v.const(codes.type, 1)))
    return v.b.fmul(odd, v.b.fmul(step, v.const(step.type, unit)))


def sixteen_nibbles(v, p):
    """Halves of eight bytes in turn, the low one first, as the lowest bits of 32-bit lanes."""
    if v.subs == 2:
        words = v.pick(v.load(p, v.ints2), [k // 8 for k in range(16)])
        return v.b.lshr(words, v.vector(words.type, [4 * (k % 8) for k in range(16)]))
    return v.ints(nibbles_in_turn(v, v.load(p, v.bytes8)))


def scales_and_minimums(v, p):
    """The eight 6-bit scales and minimums packed in 12 bytes (ggml get_scale_min_k4), as two V8F.

    Bytes 0-3 hold scales 0-3 and 4-7 minimums 0-3 in their low six bits; bytes 8-11 hold the low four bits of scales
    4-7 (low nibble) and minimums 4-7 (high nibble), whose top two bits are the top bits of bytes 0-3 and 4-7.
    """
    b = v.b
    i32 = v.int32
    first, second, third = (v.load(v.at(p, o), i32) for o in (0, 4, 8))

    def packed(low, high):
        both = v.pair(low, high)
        return v.floats(v.b.bitcast(both, v.bytes8))

    six, four, two = (v.const(i32, k) for k in (0x3F3F3F3F, 0x0F0F0F0F, 0x03030303))
    shift = lambda x, n: b.lshr(x, v.const(i32, n))  # noqa: E731
    top = lambda x: b.shl(b.and_(shift(x, 6), two), v.const(i32, 4))  # noqa: E731
    scales = packed(b.and_(first, six), b.or_(b.and_(third, four), top(first)))
    minimums = packed(b.and_(second, six), b.or_(b.and_(shift(third, 4), four), top(second)))
    return scales, minimums
