"""The sets of code points that regular expressions name, in the form of codepoints.py.

Refuses names outside CLASSES. Called by patterns at build time only.
"""

import struct
from functools import cache

from . import categories
from .codepoints import LAST, difference, intersection, union

# Unicode White_Space (PropList.txt); Python and Rust agree, ASCII-only engines do not.
SPACE = (
    (9, 13),
    (32, 32),
    (0x85, 0x85),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
)


@cache
def category(prefix):
    """All code points whose general category starts with `prefix` ("L", "Lu", ...)."""
    return union([(a, b) for a, b, name in categories.runs() if name.startswith(prefix)])


@cache
def word():
    """\\w as Oniguruma has it, the engine of the tokenizer.json files: with number letters, circled letters and the
    superscript digits and fractions of Latin-1."""
    extra = ((0xB2, 0xB3), (0xB9, 0xB9), (0xBC, 0xBE), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
    return union(extra, *(category(name) for name in ("L", "M", "Nd", "Nl", "Pc")))


# The blocks of Han characters: the unified ideographs to extension I and the compatibility ideographs, with the radicals,
# iteration marks and numerals that the script property Han holds (Scripts.txt 16.0).
HAN = (
    *((0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3), (0x16FF0, 0x16FF1)),
    *((0x20000, 0x2A6DF), (0x2A700, 0x2B739), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1), (0x2CEB0, 0x2EBE0), (0x2EBF0, 0x2EE5D)),
    *((0x2F800, 0x2FA1D), (0x30000, 0x3134A), (0x31350, 0x323AF)),
)


def named(name):
    """The set of \\p{name}: a general category of one or two letters, or Han. KeyError for anything else."""
    if name == "Han":
        return HAN
    found = category(name) if 1 <= len(name) <= 2 else ()
    if not found:
        raise KeyError(name)
    return found


def folded(s):
    """The set closed under the case folding of ASCII letters (with U+017F for s and U+212A for k)."""
    extra = []
    for upper in range(65, 91):
        lower = upper + 32
        group = {upper, lower} | ({0x17F} if upper == 83 else set()) | ({0x212A} if upper == 75 else set())
        if any(first <= c <= last for c in group for first, last in s):
            extra += [(c, c) for c in group]
    return union(s, extra)


# ---- how a native kernel looks at one code point ---------------------------------------------------------

KINDS = [*categories.NAMES, "NEL"]  # NEL: U+0085, the only white space that is not a separator category


@cache
def kind_ranges():
    """Per kind the code points above ASCII that have it."""
    high = ((128, LAST),)
    nel = ((0x85, 0x85),)
    return [nel if name == "NEL" else difference(intersection(category(name), high), nel) for name in KINDS]


def kind_table():
    """Two levels: a u16 per 128 code points (17,408 bytes) numbers a block of 128 kinds; the blocks follow."""
    kinds = bytearray(LAST + 1)
    for kind, pairs in enumerate(kind_ranges()):
        for first, last in pairs:
            kinds[first : last + 1] = bytes([kind]) * (last - first + 1)
    blocks = {}
    numbers = [blocks.setdefault(bytes(kinds[at : at + 128]), len(blocks)) for at in range(0, LAST + 1, 128)]
    return struct.pack(f"<{len(numbers)}H", *numbers) + b"".join(blocks)
