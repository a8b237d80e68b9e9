"""Sets of code points as sorted tuples of (first, last), with gaps between them.

Called by ranges for the expressions of pre-tokenizers and by reflex/constrain for those of users; imports nothing.
"""

LAST = 0x10FFFF


def union(*sets):
    out = []
    for first, last in sorted(pair for s in sets for pair in s):
        if out and first <= out[-1][1] + 1:
            out[-1][1] = max(out[-1][1], last)
        else:
            out.append([first, last])
    return tuple((a, b) for a, b in out)


def complement(s):
    out = []
    start = 0
    for first, last in s:
        if first > start:
            out.append((start, first - 1))
        start = last + 1
    if start <= LAST:
        out.append((start, LAST))
    return tuple(out)


def intersection(a, b):
    return complement(union(complement(a), complement(b)))


def difference(a, b):
    return intersection(a, complement(b))
