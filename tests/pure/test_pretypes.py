"""Split programs against an independent engine (`regex`), refusals of the compiler, linear time, and the rows themselves."""

import random
import re
import time
import unicodedata
from functools import cache
from itertools import pairwise

import pytest
import regex

from reflex import native
from reflex.errors import UnsupportedError
from reflex.tokenizer import categories, patterns, pretypes, ranges
from reflex.tokenizer.rules import RULES

STRINGS = 300
SNIPPETS = [
    "'s",
    "'LL",
    "'re ",
    "don't",
    " the",
    "  ",
    "\r\n",
    "\n\n",
    " \n",
    "1234567",
    "007",
    "IMGIMGABZ",
    "<sentinel:12>",
    "http://a/b",
    "a b",
]
SNIPPETS += [
    "(x)",
    "++",
    "e\u0301",
    "\u4e2d\u6587",
    "\u3042\u30a2",
    "\uac00\ub098",
    "\u0663\u0664",
    "\u216b",
    "\U0001f642",
    "ABCdef",
    "\u01c5x",
]


class Pieces:
    """Splits through the native matcher, in buffers that end at a page that must not be touched."""

    def __init__(self):
        self.library = native.library()
        self.kinds = self.library.address("unicode_kinds")

    def __call__(self, program, text):
        ends = [0, *self.ends(program, text)]
        return [text[a:b] for a, b in pairwise(ends)]

    def count(self, program, text):
        return len(self.ends(program, text))

    def ends(self, program, text):
        data = text.encode()
        size = self.library.split_scratch(program, len(data))
        with Guarded(size) as scratch, Guarded(len(data) + 16) as buffer:
            at = buffer.end - len(data)
            if data:
                native.view(at, len(data))[:] = data
            count = self.library.split_text(program, self.kinds, at, len(data), scratch.end - size)
            return native.view(scratch.end - size, 4 * count).cast("I").tolist() if count else []


class Guarded:
    """`size` bytes that end where an inaccessible page begins."""

    def __init__(self, size):
        self.size = (size + native.PAGE - 1) & -native.PAGE

    def __enter__(self):
        self.mapping = native.alloc(self.size + native.PAGE)
        self.end = self.mapping.address + self.size
        assert native.libc("mprotect", 3)(self.end, native.PAGE, 0) == 0
        return self

    def __exit__(self, *_):
        self.mapping.free()


@cache
def alphabet():
    """Characters of many kinds on which the pinned table, this Python and `regex` agree."""
    source = random.Random(5)
    spans = [
        (0, 0x7F, 60),
        (0x80, 0x24F, 60),
        (0x250, 0x1FFF, 300),
        (0x2000, 0x33FF, 200),
        (0x3400, 0xFFFF, 200),
        (0x10000, 0x323AF, 150),
    ]
    kinds = {c: name for first, last, name in categories.runs() for c in range(first, last + 1)}
    word = {c for first, last in ranges.word() for c in range(first, last + 1)}
    out = []
    for first, last, count in spans:
        for code_point in (source.randint(first, last) for _ in range(count)):
            c = chr(code_point)
            known = unicodedata.category(c) == kinds[code_point] not in ("Cn", "Cs")
            if known and regex.match(rf"\p{{{kinds[code_point]}}}", c) and bool(regex.match(r"\w", c)) == (code_point in word):
                out.append(c)
    return out


def texts(seed, count=STRINGS):
    source = random.Random(seed)
    letters = alphabet()

    def run():
        return source.choice(" \n\tAa1.\u4e2d") * source.randint(1, 9)

    pools = [lambda: chr(source.randrange(32, 127)), lambda: source.choice(letters), lambda: source.choice(SNIPPETS), run]
    for _ in range(count):
        yield "".join(source.choice(pools)() for _ in range(source.randint(1, 30)))


def expected(expressions, text):
    """The same splitting by `regex`: inside every piece, matches and what lies between them."""
    pieces = [text]
    for expression in expressions:
        compiled = regex.compile(expression, regex.V1)
        finer = []
        for piece in pieces:
            cuts = {0, len(piece)}
            for match in compiled.finditer(piece):
                cuts |= {match.start(), match.end()}
            cuts = sorted(cuts)
            finer += [piece[a:b] for a, b in pairwise(cuts)]
        pieces = finer
    return [p for p in pieces if p]


@pytest.mark.parametrize("rules", sorted(RULES))
def test_program_splits_like_an_independent_engine(rules):
    split = Pieces()
    program = split.library.address(f"split_{rules}")
    for text in ["", *SNIPPETS, *texts(rules)]:
        assert split(program, text) == expected(RULES[rules], text), repr(text)


@pytest.mark.parametrize("rules", sorted(RULES))
def test_shipped_program_is_current(rules):
    program = patterns.compile_rules(RULES[rules])
    assert native.bytes_at(native.library().address(f"split_{rules}"), len(program)) == program
    assert patterns.parse(RULES[rules][0])
    instructions = len(program) // patterns.INSTRUCTION
    assert instructions < 256 or rules == "han_cased_triples"  # entries of the matcher's stack


def test_every_row_has_rules_and_every_rule_a_row():
    assert {row.rules for row in pretypes.rows().values()} == set(RULES)
    assert len(pretypes.rows()) > 80


@pytest.mark.parametrize("unit", [" ", "a", "A", "7", "\n", " \n", "!", "'", "a ", "\u0301", "\u4e2d"])
def test_splitting_takes_linear_time(unit):
    split = Pieces()
    large = unit * (200_000 // len(unit))
    for rules in RULES:
        program = split.library.address(f"split_{rules}")
        for text in (large, large + "a", large + "7"):
            began = time.thread_time()
            assert split.count(program, text) >= 1
            assert time.thread_time() - began < 1.0, rules  # one that walks again from every start takes a minute


@pytest.mark.parametrize("name", ["qwen-2", "lama-bpe", "", "gpt4o"])
def test_unknown_name_is_refused_with_the_closest_three(name):
    with pytest.raises(UnsupportedError) as refused:
        pretypes.lookup(name, "model.gguf")
    assert len(refused.value.expected.removeprefix("names like ").split(", ")) == 3
    assert repr(name) in str(refused.value)


def test_closest_names_are_close():
    with pytest.raises(UnsupportedError, match="qwen2"):
        pretypes.lookup("qwen-2", "model.gguf")


@pytest.mark.parametrize(
    "expression",
    ["a*?", "a++", "(a", "a)", "[b-a]", r"\q", "(?<=a)b", "(ab)*c", "(ab){2,3}", ".", "^a", r"\p{Xx}", "(?:[0-9]{3})*a"],
)
def test_compiler_refuses_what_it_cannot_run_in_linear_time(expression):
    with pytest.raises((patterns.PatternError, KeyError)):
        patterns.compile_rules((expression,))


def test_categories_agree_with_this_python():
    ours = {c: name for first, last, name in categories.runs() for c in range(first, last + 1)}
    assert sorted(ours) == list(range(0x110000))
    differing = [c for c in ours if unicodedata.category(chr(c)) not in ("Cn", ours[c])]
    assert len(differing) <= 20, list(map(hex, differing))  # a few characters change category between versions
    assert re.fullmatch(r"\d+\.\d+\.\d+", categories.UNICODE)


def test_white_space_is_what_regex_calls_white_space():
    ours = {c for first, last in ranges.SPACE for c in range(first, last + 1)}
    compiled = regex.compile(r"\s")
    assert ours == {c for c in range(0x10000) if compiled.match(chr(c))}


def test_class_records_hold_exactly_their_set():
    source = random.Random(3)
    table = ranges.kind_table()
    for expression in (
        r"[\p{L}\p{M}]",
        r"[^\s\p{L}\p{N}]",
        r"\p{Han}",
        r"[\p{Lu}\p{Lo}&&[^\p{Han}]]",
        "[^(|\u3001-\u3003x]",
        r"\s",
    ):
        s = patterns.parse(expression)[1]
        record, toggles = patterns.class_record(s, 32)
        pairs = memoryview(toggles).cast("I").tolist() if toggles else []
        bits, mask = int.from_bytes(record[:16], "little"), int.from_bytes(record[16:24], "little")
        assert int.from_bytes(record[24:28], "little") == len(pairs) // 2
        edges = {e + d for pair in s for e in pair for d in (-1, 0, 1)}
        for c in [*range(256), *(source.randrange(0x110000) for _ in range(4000)), *(e for e in edges if 0 <= e <= ranges.LAST)]:
            block = int.from_bytes(table[2 * (c >> 7) : 2 * (c >> 7) + 2], "little")
            kind = table[17408 + 128 * block + (c & 127)]
            inside = bits >> c & 1 if c < 128 else mask >> kind & 1
            if c >= 128 and any(first <= c <= last for first, last in zip(pairs[::2], pairs[1::2], strict=True)):
                inside ^= 1
            assert bool(inside) == any(first <= c <= last for first, last in s), hex(c)
