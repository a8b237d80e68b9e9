"""Native tables of strings against dictionaries, and the walk over many strings against a plain one."""

import random

import pytest

from reflex import native
from reflex.gguf.layout import SHORT

LIBRARY = native.library()
SPLITS = 12  # int64 of a block, kernels/strings.py


def packed(strings):
    return b"".join(len(s).to_bytes(8, "little") + s for s in strings)


class Placed:
    """Bytes that end where a mapping ends, so that reading beyond them would end the process."""

    def __init__(self, data, before=16):
        self.mapping = native.alloc(len(data) + before + native.PAGE)
        self.address = self.mapping.address + ((len(data) + before + native.PAGE - 1) & -native.PAGE) - len(data)
        native.view(self.address, len(data))[:] = data
        end = self.address + len(data)
        assert end % native.PAGE == 0 and native.libc("munmap", 2)(end, native.PAGE) == 0


def table(strings, keep_last):
    data = packed(strings)
    held = Placed(data)
    block = native.alloc(LIBRARY.strings_bytes(len(strings)))
    assert LIBRARY.strings_table(block.address, held.address, len(data), len(strings), keep_last) == 0
    return block.address, held


def found(block, names):
    held = Placed(packed(names))
    out = native.alloc(4 * len(names))
    LIBRARY.strings_find(block, held.address, len(names), out.address)
    return native.view(out.address, len(names), "i").tolist()


def some_strings(count, seed):
    draw = random.Random(seed)
    return [draw.randbytes(draw.choice((0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 40, 300))) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 513, 6000])
@pytest.mark.parametrize("keep_last", [0, 1])
def test_every_string_is_found(count, keep_last):
    strings = some_strings(count, count)
    block, held = table(strings, keep_last)
    wanted = {}
    for index, text in enumerate(strings):
        wanted[text] = index if keep_last else wanted.get(text, index)
    names = [*strings, *some_strings(200, "others"), b"x" * 301]
    assert found(block, names) == [wanted.get(name, -1) for name in names]
    for index in {0, count // 2, count - 1}:
        at = LIBRARY.string_address(block, index)
        assert native.bytes_at(at + 8, native.view(at, 1, "q")[0]) == strings[index]
    assert held.address


@pytest.mark.parametrize("keep_last", [0, 1])
def test_equal_strings_overflow_their_bucket(keep_last):
    strings = [b"same"] * 3000 + [b"other", b"same"]
    block, held = table(strings, keep_last)
    assert found(block, [b"same", b"other", b"none"]) == [3001 if keep_last else 0, 3000, -1]
    assert held.address


def test_no_strings_at_all():
    block, held = table([], 0)
    assert found(block, [b"", b"a"]) == [-1, -1]
    assert held.address


# ---- merges that the tokens repeat ----------------------------------------------------------------------


def splits(tokens, merges):
    """The splits that the native walk finds, or None."""
    block = native.alloc(LIBRARY.strings_bytes(len(tokens)))
    room = native.alloc(len(merges))
    strings, said = Placed(packed(tokens)), Placed(packed(merges))
    sizes = (len(packed(tokens)), len(tokens), said.address, len(packed(merges)), len(merges))
    assert LIBRARY.strings_merged(block.address, strings.address, *sizes, room.address) == 0
    at = native.view(block.address, 16, "q")[SPLITS]
    assert at in (0, room.address)
    return list(native.view(at, len(merges))) if at else None


PARTS = [
    (b"a", b"b"),
    (b"ab", b"c"),
    (b"a" * 8, b"b"),
    (b"x" * 7, b"y" * 8),
    (b"p" * 30, b"q"),
    (b"p", b"q" * 40),
    (b"r" * 255, b"s"),
]


def test_merges_agree_with_tokens():
    pairs = PARTS * 3
    merges, made = [a + b" " + b for a, b in pairs], [a + b for a, b in pairs]
    sizes = [len(a) for a, _ in pairs]
    assert splits([b"first", *made], merges) == sizes
    assert splits([*made, b"", b"last"], merges) == sizes
    assert splits([b"q", b"r", *made, b"long enough to be read beyond the tokens before it"], merges) == sizes


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("wrong", [b"ab", b"a b ", b" ab", b"a  b", b"a c", b"b b", b"abc", b"", b"r" * 256 + b" s"])
def test_one_merge_that_does_not_agree(at, wrong):
    merges, made = [a + b" " + b for a, b in PARTS], [a + b for a, b in PARTS]
    tokens = [b"first", *made, b"last one of the tokens"]
    assert splits(tokens, merges) is not None
    merges[at] = wrong
    assert splits(tokens, merges) is None


def test_merges_without_all_their_tokens():
    merges, made = [a + b" " + b for a, b in PARTS], [a + b for a, b in PARTS]
    assert splits(made[:-1], merges) is None
    assert splits([*made[:3], b"between", *made[3:]], merges) is None
    assert splits([b"none"], merges) is None


# ---- the walk over the header ---------------------------------------------------------------------------


def walk(strings, change=None):
    """(code, offset of the fault or of the end) of a header with one array of strings; `change` edits its bytes."""
    head = b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + (1).to_bytes(8, "little")
    head += (
        (1).to_bytes(8, "little")
        + b"k"
        + (9).to_bytes(4, "little")
        + (8).to_bytes(4, "little")
        + len(strings).to_bytes(8, "little")
    )
    data = bytearray(head + packed(strings))
    if change:
        change(data, len(head))
    held, out = Placed(bytes(data)), native.alloc(4096)
    code = LIBRARY.gguf_scan(held.address, len(data), 1, 0, LIBRARY.address("gguf_block_sizes"), out.address)
    results = native.view(out.address, 16, "q").tolist()
    return code, results[2 if code else 0], plain_walk(data, len(head), len(strings))


def plain_walk(data, at, count):
    for _ in range(count):
        if len(data) - at < 8:
            return SHORT, at
        size = int.from_bytes(data[at : at + 8], "little")
        at += 8
        if size > len(data) - at:
            return SHORT, at
        at += size
    return 0, at


@pytest.mark.parametrize("longest", [0, 5, 30, 300, 40_000])
def test_many_strings_are_walked_as_one_by_one(longest):
    draw = random.Random(longest)
    zeros = longest == 300  # strings that hold what looks like a length
    strings = [
        bytes(draw.randrange(longest + 1)) if zeros else b"z" * draw.randrange(longest + 1)
        for _ in range(60_000 if longest < 99 else 20_000)
    ]
    code, at, wanted = walk(strings)
    assert (code, at) == wanted and code == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_wrong_length_is_met_where_it_is(seed):
    draw = random.Random(seed)
    strings = [b"z" * draw.randrange(12) for _ in range(60_000)]

    def change(data, start):
        at = start + len(packed(strings[: draw.randrange(len(strings))]))
        value = (1 << 64) - draw.randrange(1, 100) if seed % 3 == 0 else draw.randrange(1 << (12 + 4 * (seed % 9)))
        data[at : at + 8] = value.to_bytes(8, "little")

    code, at, wanted = walk(strings, change)
    assert (code, at) == wanted


def test_an_array_cut_short():
    strings = [b"abcdefg"] * 40_000
    for cut in (1, 7, 8, 14, 15, 16, 70_000, 200_000):
        code, at, wanted = walk(strings, lambda data, start, cut=cut: data.__delitem__(slice(len(data) - cut, None)))
        assert (code, at) == wanted and code == SHORT
