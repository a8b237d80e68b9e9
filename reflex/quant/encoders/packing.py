"""Levels into the bits of blocks: the inverse of what fields.py reads, for eight blocks at once.

Levels lie as lanes, one int per element of a block. `out` is where the first block begins; lane k's lies k * nbytes further.
"""


def planes(v, nbytes, at, count, group, width, shift=0):
    """Function (levels, out): bits `shift` to `shift + width` of the levels become `count` bytes at byte `at`, in the packing
    of `fields.planes`."""
    layers, mask = 8 // width, (1 << width) - 1

    @v.function
    def byte(levels, index):
        base = (index // group * layers) * group + index % group
        value = (v.load_ints(levels, base) >> shift) & mask
        for k in range(1, layers):
            value |= ((v.load_ints(levels, base + k * group) >> shift) & mask) << (k * width)
        return value

    @v.function
    def write(levels, out):
        v.stay_apart()
        for i in range(0, count, 4):
            word = byte(levels, i) | (byte(levels, i + 1) << 8)
            word |= (byte(levels, i + 2) << 16) | (byte(levels, i + 3) << 24)
            v.put_four(out + at + i, nbytes, word)

    return write


def in_turn(v, first, *rest):
    """Function (levels, out) that does what several of these do."""
    if not rest:
        return first
    others = in_turn(v, *rest)

    @v.function
    def write(levels, out):
        first(levels, out)
        others(levels, out)

    return write


def sixbit_pairs(v, nbytes, at):
    """Function (sixteen ints: eight scales, eight minimums; out): twelve bytes as quant/sixbit.py reads them."""

    @v.function
    def write(whole, out):
        for j in range(4):
            scale, low = v.load_ints(whole, j), v.load_ints(whole, 8 + j)
            later, later_low = v.load_ints(whole, 4 + j), v.load_ints(whole, 12 + j)
            v.put_byte(out + at + j, nbytes, scale | ((later >> 4) << 6))
            v.put_byte(out + at + 4 + j, nbytes, low | ((later_low >> 4) << 6))
            v.put_byte(out + at + 8 + j, nbytes, (later & 15) | ((later_low & 15) << 4))

    return write


def sixbit_scales(v, nbytes, at):
    """Function (sixteen ints, out): twelve bytes; the first eight have four low bits of two, the rest two high bits of four."""

    @v.function
    def write(whole, out):
        for j in range(8):
            v.put_byte(out + at + j, nbytes, (v.load_ints(whole, j) & 15) | ((v.load_ints(whole, 8 + j) & 15) << 4))
        for j in range(4):
            byte = v.load_ints(whole, j) >> 4
            for k in range(1, 4):
                byte |= (v.load_ints(whole, j + 4 * k) >> 4) << (2 * k)
            v.put_byte(out + at + 8 + j, nbytes, byte)

    return write


def nibble_pairs(v, nbytes, at, count):
    """Function (2 x count ints: count scales, count minimums; out): a byte of both for each."""

    @v.function
    def write(whole, out):
        for j in range(count):
            v.put_byte(out + at + j, nbytes, v.load_ints(whole, j) | (v.load_ints(whole, count + j) << 4))

    return write
