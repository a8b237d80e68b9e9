"""Code points as the bytes of UTF-8: ranges of one become sequences of ranges of the other."""

LAST = 0x10FFFF
LENGTHS = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, LAST))


def spans(ranges):
    """Sequences of (first, last) byte pairs, ascending, that spell the code points of ascending ranges; surrogates are left out."""
    for first, last in ranges:
        for low, high in LENGTHS:
            a, z = max(first, low), min(last, high)
            if a <= z:
                yield from _split(a, z, len(chr(a).encode()))


def _split(first, last, size):
    """Cut until every byte of the code points has a range of its own."""
    for index in range(1, size):
        mask = (1 << 6 * index) - 1
        if first & ~mask != last & ~mask:
            if first & mask:
                yield from _split(first, first | mask, size)
                yield from _split((first | mask) + 1, last, size)
                return
            if last & mask != mask:
                yield from _split(first, (last & ~mask) - 1, size)
                yield from _split(last & ~mask, last, size)
                return
    yield tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))
