"""How a block format feeds vector code: 256 weights at a time as eight rows of 32 byte codes with float scales.

A weight is scale x code + minimum, with one scale and minimum per 16 codes (formats with one per 32 repeat it). `v` is the
vector builder of the build side (reflex/kernels/vector.py); nothing here imports it, so a format file stays plain data
and arithmetic. A format file binds the name LANES to one of the three records below; kernels find it by enumerating the
folder. Kernels ask for the codes of one sub-block, or of two neighbours (an even one first) where registers are wide.
"""

GROUP = 256  # weights per group
SUB = 32  # weights per sub-block


class Group:
    """One group's operands: `scales` holds 16 floats, one per 16 codes, `minimums` likewise or None; `codes(i, count)`
    gives the 32 x count bytes of the sub-blocks from i on."""

    def __init__(self, scales, minimums, codes):
        self.scales = scales
        self.minimums = minimums
        self.codes = codes


class Small:
    """Blocks of 32: eight blocks make a group, and rows may end in the middle of one.

    scale_at, minimum_at: byte offsets of half floats (minimum_at None: the minimum is -bias x scale).
    signed: codes are signed bytes.  codes(v, pointers): the codes of the blocks at those pointers, end to end.
    """

    def __init__(self, nbytes, codes, scale_at=0, minimum_at=None, bias=0, signed=False):
        self.nbytes = nbytes
        self.group_bytes = 8 * nbytes
        self.read = codes
        self.scale_at = scale_at
        self.minimum_at = minimum_at
        self.bias = bias
        self.signed = signed

    def group(self, v, p):
        if self.minimum_at is not None:  # the two halves lie side by side
            scale, minimum = (v.twice(x) for x in v.half_pairs(v.at(p, self.scale_at), self.nbytes))
        else:
            scale = v.twice(v.halves(v.at(p, self.scale_at), self.nbytes))
            minimum = v.b.fmul(scale, v.const(scale.type, -float(self.bias))) if self.bias else None
        return Group(scale, minimum, lambda i, count: self.codes(v, v.at(p, i * self.nbytes), count))

    def codes(self, v, p, count):
        """Codes of `count` consecutive blocks."""
        return self.read(v, [v.at(p, k * self.nbytes) for k in range(count)])

    def block(self, v, p):
        """(scale, minimum or None) of a single block, scalars."""
        scale = v.half(v.at(p, self.scale_at))
        minimum = None
        if self.minimum_at is not None:
            minimum = v.half(v.at(p, self.minimum_at))
        elif self.bias:
            minimum = v.b.fmul(scale, v.const(scale.type, -float(self.bias)))
        return scale, minimum


class Large:
    """Super-blocks of 256: one block is one group and rows are whole groups. read(v, pointer) -> Group."""

    signed = False
    block = None

    def __init__(self, nbytes, read):
        self.nbytes = self.group_bytes = nbytes
        self.group = read


class Plain:
    """Floating-point weights. load(v, pointer) gives the eight float32 values at a pointer, load_one a single one."""

    def __init__(self, nbytes, load, load_one):
        self.nbytes = nbytes
        self.load = load
        self.load_one = load_one


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
