"""Regular expressions as constraints: every text judged as `re` and `regex` judge it, random patterns, refusals."""

import itertools
import random
import re

import constrained
import pytest
import regex
from constrained import TOKENIZER, asking, matches

from reflex.constrain import grammar_of
from reflex.errors import InvalidInputError

MOST = 60


SMALL = [
    "a",
    "ab|ba",
    "a*",
    "(a|b)*",
    "a+b?",
    "a{2}",
    "a{1,3}b",
    "(ab){0,2}",
    "a{2,}",
    "(a*)*",
    "(a?){3}",
    "((a|b){2}){1,2}",
    "[ab]c?",
    "[^a]",
]
SMALL += [
    "(a|ab)(c|bc)",
    "(a?b?){2,3}",
    "a{,2}",
    "(a{0,2}b){0,2}",
    "",
    "a||b",
    "((a{0,3}){0,3}){0,3}b",
    "^ab$|^c$",
    ".b",
    "(?:a)(?P<n>b)",
    "a*?b",
    "(|a)(|b)",
]


@pytest.mark.parametrize("pattern", SMALL)
def test_every_short_text_is_judged_as_by_re(pattern):
    constraint = asking(regex=pattern)
    wanted = re.compile(pattern)
    texts = ["".join(letters) for size in range(7) for letters in itertools.product("abc", repeat=size)]
    assert [t for t in texts if matches(constraint, t)] == [t for t in texts if wanted.fullmatch(t)]


CLASSES = [r"[^\d]", r"[^\w]", r"[^\s]", r"[^a\S]"]
CLASSES += [
    r"\d",
    r"\D",
    r"\w",
    r"\W",
    r"\s",
    r"\S",
    ".",
    r"\p{L}",
    r"\p{Lu}",
    r"\P{L}",
    r"[^\W\d]",
    r"[\s\S]",
    r"[\x41-\u00e9]",
    r"[^\D]",
    "[é-ÿ€😀]",
]
CLASSES += [r"\u{1F600}", r"[a\-z]", r"[a-]", r"\.", r"\x41", r"\cJ", r"[\b]", r"\n"]
CODES = [
    *range(0x250),
    0x37E,
    0x660,
    0x7FF,
    0x800,
    0x1680,
    0x180E,
    0x2028,
    0x20AC,
    0x3042,
    0xD7FF,
    0xE000,
    0xFEFF,
    0xFFFD,
    0xFFFF,
    0x10000,
    0x1F600,
    0x10FFFF,
]


@pytest.mark.parametrize("pattern", CLASSES)
def test_classes_allow_only_what_every_engine_does(pattern):
    constraint = asking(regex=pattern)
    spelled = pattern.replace(r"\u{1F600}", r"\U0001F600").replace(r"\cJ", r"\n")
    for flags in (0,) if r"\p" in pattern.lower() else (0, regex.ASCII):
        wanted = regex.compile(spelled, flags)
        wrong = [hex(code) for code in CODES if matches(constraint, chr(code)) and not wanted.fullmatch(chr(code))]
        assert not wrong
    assert any(matches(constraint, chr(code)) for code in CODES)


def test_any_character_is_no_line_end_of_any_engine():
    allowed = asking(regex=".")
    assert [code for code in CODES if not matches(allowed, chr(code))] == [10, 13, 0x2028]


def test_classes_outside_the_shorthands_are_exact():
    for pattern in (r"\p{L}", r"\p{Lu}", r"[\x41-\u00e9]", "[é-ÿ€😀]", r"[a\-z]"):
        constraint, wanted = asking(regex=pattern), regex.compile(pattern)
        assert [code for code in CODES if matches(constraint, chr(code))] == [code for code in CODES if wanted.fullmatch(chr(code))]


class Patterns:
    """Random patterns that `re` reads alike."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def make(self, depth=2):
        pick = self.random
        atoms = ["a", "b", "é", "😀", r"\.", "[a-f]", "[^x]", r"\d", r"\w", r"\s", ".", " ", '"', r"[\"\\]", "foo", "\\n", "€"]
        if depth == 0:
            return pick.choice(atoms)
        parts = []
        for _ in range(pick.randint(1, 3)):  # unlimited repetitions of groups make `re` itself hang
            if pick.random() < 0.5:
                parts.append(f"({self.make(depth - 1)})" + pick.choice(["", "", "?", "{2}", "{1,3}", "{0,4}?"]))
            else:
                parts.append(pick.choice(atoms) + pick.choice(["", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,40}", "*?"]))
        return pick.choice(["", "|"]).join(parts)


@pytest.mark.parametrize("batch", range(5))
def test_random_patterns_always_match(batch):
    made = 0
    for seed in range(60 * batch, 60 * batch + 60):
        pattern = Patterns(seed).make()
        try:
            constraint = asking(regex=pattern)
            constrained.begin(constraint, MOST)
        except InvalidInputError as error:
            assert "no result of the constraint fits" in str(error)
            continue
        rules = constrained.rules(TOKENIZER, seed)
        for turn, rule in enumerate(rules):
            if (turn + seed) % 3 == 0:
                generation = constrained.complete(constraint, TOKENIZER, rules[rule], MOST, temperature=turn % 2, seed=seed)
                assert regex.fullmatch(pattern, generation.text, timeout=300), (pattern, rule, generation.text)
                assert b"".join(TOKENIZER.pieces[t] for t in generation.token_ids) == generation.text.encode()
                made += 1
        constraint.close()
    assert made > 150


REFUSED = {
    "a(?=b)": "look-around",
    "(?<!a)b": "look-around",
    r"(a)\1": "back-references",
    r"(?P<x>a)\k<x>": "back-references",
    r"\bword": "word borders",
    "(?i)a": "flags",
    "a++": "possessive",
    "a**": "repetition of a repetition",
    "a{3,2}": "contradicts",
    "a{x}": "begins no repetition",
    "a{,}": "begins no repetition",
    "*a": "nothing before",
    "(a": "not closed",
    "a)": "closes nothing",
    "[a": "not closed",
    "[]a]": "empty class",
    "[z-a]": "range contradicts",
    "[[:alpha:]]": "POSIX",
    "[a&&b]": "operations",
    "a^b": "anchor",
    "(^a)": "anchor",
    "a$*": "anchor",
    r"\q": "unknown escape",
    r"\x4": "names no character",
    r"\ud800": "names no character",
    r"\p{Klingon}": "unknown class",
    "a\\": "at the end",
    "\ud800": "surrogate",
    "(" * 5000 + ")" * 5000: "nested too deeply",
    "a" * 100_001: "too long",
    "a{9999999999999999999}": "too large",
    "|".join(f"[{chr(0x4E00 + i)}-{chr(0x9000 + i)}]{{2}}" for i in range(3000)) * 20: "too l",
}


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_not_supported_is_refused_with_its_place(number):
    pattern, why = list(REFUSED.items())[number]
    with pytest.raises(InvalidInputError, match=why) as found:
        grammar_of(regex=pattern)
    assert found.value.where or "too large" in why or "too l" in why
