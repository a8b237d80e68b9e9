"""Constrained generation: choices and regular expressions against `re`, budgets, ends, hostile patterns, words of vocabularies."""

import itertools
import math
import random
import re
from array import array

import constrained
import pytest
import regex
import tiny

from reflex import native
from reflex.constrain import grammar_of
from reflex.constrain.guide import FRESH, WORK
from reflex.errors import InvalidInputError
from reflex.gguf.reader import open_model
from reflex.sample import Sampling, choose, uniform
from reflex.tokenizer import load

TOKENIZER = constrained.Tokenizer()
LETTERS = constrained.Tokenizer(extra=[b"aa", b"ab", b"abab", b"ba", b"aaaa"])
MOST = 60


def bound(tokenizer=TOKENIZER, **asked):
    return constrained.bound(grammar_of(**asked), tokenizer)


def matches(constraint, text):
    """Whether a text is one of the constraint's, by its table of states alone."""
    states, state = constraint.states, constraint.states.start
    for byte in text.encode():
        state = states.step(state, byte)
        if state < 0:
            return False
    return states.ends[state]


# ---- regular expressions ----

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
    constraint = bound(regex=pattern)
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
    constraint = bound(regex=pattern)
    spelled = pattern.replace(r"\u{1F600}", r"\U0001F600").replace(r"\cJ", r"\n")
    for flags in (0,) if r"\p" in pattern.lower() else (0, regex.ASCII):
        wanted = regex.compile(spelled, flags)
        wrong = [hex(code) for code in CODES if matches(constraint, chr(code)) and not wanted.fullmatch(chr(code))]
        assert not wrong
    assert any(matches(constraint, chr(code)) for code in CODES)


def test_any_character_is_no_line_end_of_any_engine():
    allowed = bound(regex=".")
    assert [code for code in CODES if not matches(allowed, chr(code))] == [10, 13, 0x2028]


def test_classes_outside_the_shorthands_are_exact():
    for pattern in (r"\p{L}", r"\p{Lu}", r"[\x41-\u00e9]", "[é-ÿ€😀]", r"[a\-z]"):
        constraint, wanted = bound(regex=pattern), regex.compile(pattern)
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
            constraint = bound(regex=pattern)
            constrained.begin(constraint, MOST)
        except InvalidInputError as error:
            assert "no result of the constraint fits" in str(error)
            continue
        rules = constrained.rules(TOKENIZER, seed)
        for turn, rule in enumerate(rules):
            if (turn + seed) % 3 == 0:
                generation = constrained.complete(constraint, TOKENIZER, rules[rule], MOST, temperature=turn % 2, seed=seed)
                assert regex.fullmatch(pattern, generation.text, timeout=20), (pattern, rule, generation.text)
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


# ---- nothing hangs, nothing grows ----

HOSTILE = [
    "((a{0,1000000000}){0,1000000000}){0,1000000000}b",
    "(a|b)*a(a|b){60}",
    "(((((a*)*)*)*)*)*b",
    "(a|a|a|a)*(a|a|a|a)*(a|a|a|a)*b",
    "(.*a){25}",
    "(a?){1000}b",
    "((a|b)(a|b)?){0,500}(aa|bb)",
    r"(\w*\w*\w*\w*)*!",
    "(a{1,1000}b?){1,1000}",
    "|".join("ab" * n for n in range(1, 300)),
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_patterns_stay_within_their_limits(pattern):
    """Counted: places looked at and states made per token have a limit, and the text matches all the same."""
    constraint = bound(LETTERS, regex=pattern)
    rules = constrained.rules(LETTERS, 1)
    most = 60
    for rule in ("longest", "noise"):
        walk = constrained.begin(constraint, most)
        text, limit = b"", (3 * WORK, FRESH + 1000)
        while not walk.finished and walk.left:
            before = constraint.states.work, len(constraint.states.places), constraint.states.epoch
            token = walk.pick(memoryview(rules[rule](walk.left)), Sampling(), 0)
            assert constraint.states.work - before[0] <= limit[0] and len(constraint.states.places) - before[1] <= limit[1]
            if token in LETTERS.eog:
                break
            text += LETTERS.pieces[token]
            walk.accept(token)
        assert constraint.states.ends[walk.state]
        if len(text) < 30 or "*)*" not in pattern:
            assert regex.fullmatch(pattern.replace("000000", "0"), text.decode(), timeout=20)


@pytest.mark.parametrize(("limit", "value"), [("WORK", 0), ("FRESH", 0), ("WORK", 40)])
def test_a_token_is_left_whatever_the_limits_leave_out(monkeypatch, limit, value):
    """With no work allowed at all, only the shortest way is left, and every text still matches."""
    from reflex.constrain import guide

    monkeypatch.setattr(guide, limit, value)
    for pattern in ("[ab]{3,9}c", r"(foo|\d{2,5})+;", "é{2}x?", "(a|b)*a(a|b){5}"):
        for rule in constrained.rules(TOKENIZER, 1).values():
            generation = constrained.complete(bound(regex=pattern), TOKENIZER, rule, 12)
            assert regex.fullmatch(pattern, generation.text), (pattern, generation.text)


def test_repetitions_are_counted_not_copied():
    grammar = grammar_of(regex="(ab){0,1000000000}c{1000000}")
    assert len(grammar.kind) < 20
    with pytest.raises(InvalidInputError, match="no result of the constraint fits") as found:
        constrained.begin(constrained.bound(grammar, LETTERS), 50)
    assert "at least" in found.value.expected and found.value.found == 50


def test_empty_rounds_are_not_counted():
    constraint = bound(LETTERS, regex="((a?){0,1000000000}){0,1000000000}b?")
    assert matches(constraint, "aaaab") and not constraint.states.lost and constraint.states.work < 1000


@pytest.mark.parametrize("asked", [{"regex": "[^\\x00-\\u{10FFFF}]"}, {"regex": "a[^\\s\\S]"}])
def test_a_constraint_without_texts_is_refused(asked):
    with pytest.raises(InvalidInputError, match="no text satisfies"):
        bound(**asked)


# ---- choices ----


def test_choices_are_the_only_texts():
    choices = ["yes", "no", "not at all", "nö", "y", 'a"b', "x" * 70, "😀"]
    constraint, seen = bound(choices=choices), set()
    for seed in range(40):
        for rule in constrained.rules(TOKENIZER, seed).values():
            seen.add(constrained.complete(constraint, TOKENIZER, rule, 80, temperature=1.0, seed=seed).text)
    assert seen <= set(choices) and len(seen) > 5


def test_many_choices_that_begin_alike():
    choices = ["a" * n for n in range(1, 3000)]
    constraint = bound(LETTERS, choices=choices)
    assert all(matches(constraint, text) for text in choices[::97]) and not matches(constraint, "a" * 3000)
    many = [f"item {n:05}" for n in range(50_000)]
    grammar = grammar_of(choices=many)
    constraint = constrained.bound(grammar, LETTERS)
    assert matches(constraint, many[-1]) and not matches(constraint, "item 50000") and len(grammar.kind) < 100


@pytest.mark.parametrize(
    "asked", [{"choices": [""]}, {"choices": ["\ud800"]}, {"choices": [1]}, {"regex": "a", "choices": ["b"]}, {}]
)
def test_choices_without_meaning(asked):
    with pytest.raises(InvalidInputError):
        grammar_of(**asked)


# ---- ends and budgets ----


def always(text, tokenizer=TOKENIZER):
    """A rule that wants one token above all."""
    row = array("f", [0.0]) * tokenizer.size
    row[tokenizer.pieces.index(text)] = 50.0
    return lambda step: row


def test_a_finished_grammar_ends_before_another_step():
    """The grammar '{' '}': after it nothing may follow, and no model step is spent on finding out."""
    constraint = bound(regex=r"\{\}")
    generation = constrained.complete(constraint, TOKENIZER, always(b"ab"), 10)
    assert (generation.text, generation.finish_reason) == ("{}", "stop")
    assert generation.session.plan.steps == len(generation.token_ids)


def test_only_ends_are_allowed_where_nothing_else_is():
    tokenizer = constrained.Tokenizer(extra=[], single=b"ab")
    constraint = bound(tokenizer, regex="ab?")
    generation = constrained.complete(constraint, tokenizer, always(b"b", tokenizer), 9)
    assert (generation.text, generation.finish_reason) == ("ab", "stop")
    generation = constrained.complete(constraint, tokenizer, always(b"<stop>", tokenizer), 9)
    assert (generation.text, generation.finish_reason) == ("a", "stop")
    generation = constrained.complete(constraint, tokenizer, always(b"<stop>", tokenizer), 1)
    assert (generation.text, generation.finish_reason) == ("a", "length")
    tokenizer = constrained.Tokenizer(extra=[b"ac"], single=b"a", ends=())
    generation = constrained.complete(bound(tokenizer, regex="a(cd)?"), tokenizer, always(b"a", tokenizer), 9)
    assert (generation.text, generation.finish_reason) == ("a", "stop"), "no token goes on, and there is no end token"


@pytest.mark.parametrize("pattern", ["[ab]*c", "(ab){2,}c", "a{3,9}|b{4}", "x(a|bb|ccc){1,5}yz", "(a{5}){1,4}", "aaaa(b|c*d)"])
def test_every_budget_from_the_shortest_on_is_met(pattern):
    constraint = bound(LETTERS, regex=pattern)
    lengths = set()
    for most in range(1, 25):
        rules = constrained.rules(LETTERS, most)
        try:
            constrained.begin(constraint, most)
        except InvalidInputError as error:
            assert not lengths, f"{most} refused after less was enough"
            assert str(most + 1) in error.expected or int(error.expected.split()[2]) > most
            continue
        for rule in rules:
            generation = constrained.complete(constraint, LETTERS, rules[rule], most, temperature=most % 2, seed=most)
            assert regex.fullmatch(pattern, generation.text) and len(generation.token_ids) <= most
            lengths.add(len(generation.token_ids))
    assert lengths


def test_the_shortest_way_counts_tokens_not_bytes():
    constraint = bound(LETTERS, regex="(abab){5}")
    assert constraint.need(constraint.states.start) == 5
    with pytest.raises(InvalidInputError, match="no result") as found:
        constrained.begin(constraint, 4)
    assert found.value.expected == "at least 5 tokens"
    assert constrained.complete(constraint, LETTERS, always(b"a", LETTERS), 5).text == "abab" * 5


def test_bytes_without_a_token_of_their_own():
    tokenizer = constrained.Tokenizer(extra=["é".encode(), b"zq"], single=[c for c in range(128) if c not in b"zq"])
    for pattern, text in (("é{3}", "ééé"), ("[é€]a", "éa"), ("(z|zq|b)", None), ("zq{1,5}", "zq")):
        constraint = bound(tokenizer, regex=pattern)
        for rule in constrained.rules(tokenizer, 3).values():
            found = constrained.complete(constraint, tokenizer, rule, 5).text
            assert found == text if text else found in ("zq", "b")
    with pytest.raises(InvalidInputError, match="cannot spell"):
        constrained.begin(bound(tokenizer, regex="a€"), 50)


def test_one_grammar_serves_two_vocabularies():
    """What a way costs is the vocabulary's affair: bound to a second one, the first still keeps its promises."""
    grammar = grammar_of(regex="(qz){2,4}|é{1,3}x")
    few = constrained.Tokenizer(extra=[b"qz"], single=[c for c in range(128) if c not in b"qz"])
    constraints = [constrained.bound(grammar, tokenizer) for tokenizer in (few, TOKENIZER)]
    for constraint in constraints:
        for rule in constrained.rules(constraint.tokenizer, 1).values():
            text = constrained.complete(constraint, constraint.tokenizer, rule, 6).text
            assert re.fullmatch("(qz){2,4}|é{1,3}x", text)


def test_stop_texts_are_refused_and_other_models_too():
    constraint = bound(regex="a+")
    session = constrained.Session(constrained.Plan(TOKENIZER.size, 8, None), TOKENIZER)
    with pytest.raises(InvalidInputError, match="stop text"):
        constraint.begin(session, 5, ("a",))
    session.tokenizer = LETTERS
    with pytest.raises(InvalidInputError, match="another model"):
        constraint.begin(session, 5)


# ---- sampling ----


def test_filters_apply_to_the_allowed_tokens():
    """top-k 2 among the allowed tokens is not top-k 2 of all; the draw is that of sample.choose over the allowed ones."""
    tokenizer = constrained.Tokenizer(extra=[])
    constraint = bound(tokenizer, regex="[a-h]")
    base = random.Random(5)
    row = array("f", (base.gauss(0, 2) for _ in range(tokenizer.size)))
    allowed = [tokenizer.pieces.index(bytes([c])) for c in b"abcdefgh"]
    settings = {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.05}
    for seed in range(200):
        walk = constrained.begin(constraint, 1)
        wanted = choose([row[t] for t in allowed], *settings.values(), uniform(seed, 3))
        assert walk.pick(memoryview(row), Sampling(**settings, seed=seed), 3) == allowed[wanted]
    assert walk.pick(memoryview(row), Sampling(), 0) == max(allowed, key=lambda t: row[t])


def test_logits_that_are_no_numbers_are_noticed():
    constraint = bound(regex="[ab]")
    row = array("f", [0.0]) * TOKENIZER.size
    row[TOKENIZER.pieces.index(b"c")] = math.nan
    assert constrained.begin(constraint, 1).pick(memoryview(row), Sampling(), 0) >= 0
    row[TOKENIZER.pieces.index(b"b")] = math.nan
    assert constrained.begin(constraint, 1).pick(memoryview(row), Sampling(), 0) == -1


def test_the_same_seed_gives_the_same_text_whatever_was_cached():
    rules = constrained.rules(TOKENIZER, 9)
    asked = {"regex": r"(\w+|\d{2,9}[,.;])*!"}
    warm = bound(**asked)
    for seed in range(10):
        again = constrained.complete(warm, TOKENIZER, rules["noise"], 40, temperature=1.0, seed=seed)
        assert (
            again.token_ids
            == constrained.complete(bound(**asked), TOKENIZER, rules["noise"], 40, temperature=1.0, seed=seed).token_ids
        )


def test_two_generations_may_share_a_constraint_and_states_may_be_forgotten(monkeypatch):
    from reflex.constrain import guide

    rules = constrained.rules(TOKENIZER, 4)
    asked = {"regex": r"([a-z]{1,9} ){3,40}\d{3}"}
    alone = [constrained.complete(bound(**asked), TOKENIZER, rules[name], 90).token_ids for name in ("noise", "longest")]
    monkeypatch.setattr(guide, "FULL", 20)
    monkeypatch.setattr(guide, "MASKS", 3)
    shared = bound(**asked)
    session = constrained.Session(constrained.Plan(TOKENIZER.size, 200, None), TOKENIZER)
    walks = [shared.begin(session, 90) for _ in range(2)]
    found = [[], []]
    while not all(walk.finished for walk in walks):
        for walk, ids, name in zip(walks, found, ("noise", "longest"), strict=True):
            if not walk.finished:
                ids.append(walk.pick(memoryview(rules[name](len(ids) + 1)), Sampling(), 0))
                walk.accept(ids[-1])
    assert found == alone and shared.states.epoch > 3


COUNTED = ["[a-z ]{0,60}!", "([a-z]{1,40} ){2,50}x", "((a|b){0,30}c){0,30}", "x{0,25}(y|z{0,30})", "(ab?){3,40}"]


@pytest.mark.parametrize("pattern", COUNTED)
def test_states_that_differ_in_a_count_share_what_is_the_same(pattern):
    """Along a text, the mask of every state equals that of a constraint which shares nothing."""
    shared, alone = bound(regex=pattern), bound(regex=pattern)
    alone.states.outline = lambda state: None
    rules = constrained.rules(TOKENIZER, 2)
    for rule in ("noise", "longest", "flat"):
        walks = [constrained.begin(constraint, 200) for constraint in (shared, alone)]
        while not walks[0].finished and walks[0].left > 110:
            masks = [native.bytes_at(w.constraint.mask(w.state, 1 << 20), w.constraint.mask_bytes) for w in walks]
            assert masks[0] == masks[1]
            token = walks[0].pick(memoryview(rules[rule](walks[0].left)), Sampling(), 0)
            if token in TOKENIZER.eog:
                break
            for walk in walks:
                walk.accept(token)
    assert 0 < len(shared._short) < len(shared.masks)


# ---- the words of real vocabularies ----


@pytest.mark.parametrize("name", ["llama", "llama-smollm", "llama-factors", "qwen2", "gemma3"])
def test_words_are_the_pieces_of_the_tokenizer(name, tmp_path):
    file = open_model(str(tiny.write(name, tmp_path / "tiny.gguf")))
    tokenizer = load(file)
    check_words(tokenizer, tokenizer.size)
    check_words(tokenizer, 300)
    tokenizer.close()


def check_words(tokenizer, size):
    from reflex.constrain.words import Words

    words = Words(tokenizer, size)
    places = native.view(words.entries, 3 * words.count, "I").tolist()
    found = {}
    for i in range(words.count):
        token, begin, end = places[3 * i : 3 * i + 3]
        found[token] = native.bytes_at(words.text + begin, end - begin)
    usable = [t for t in range(size) if not tokenizer.is_special(t) and t not in tokenizer.eog and tokenizer.piece(t, False)]
    blank = [t for t in range(size) if tokenizer.is_special(t) and t not in tokenizer.eog and tokenizer.piece(t, False)]
    blank = [t for t in blank if not tokenizer.piece(t, False).strip(b" \t\n\r\v\f")]
    assert found == {token: tokenizer.piece(token, False) for token in [*usable, *blank]}
    first = native.view(words.first, 257, "I").tolist()
    assert first[-1] == words.count and words.longest == max(map(len, found.values()))
    assert [bool(s) for s in words.single] == [bytes([b]) in found.values() for b in range(256)]
    assert all(found[places[3 * i]][0] == b for b in range(256) for i in range(first[b], first[b + 1]))
    words.close()
