"""Constrained generation whatever the constraint: choices, ends and budgets, sampling, the words of vocabularies."""

import math
import random
import re
from array import array

import constrained
import pytest
import regex
import tiny
from constrained import LETTERS, TOKENIZER, asking, check_words, matches

from reflex import native
from reflex.constrain import grammar_of
from reflex.errors import InvalidInputError
from reflex.gguf.reader import open_model
from reflex.sample import Sampling, choose, uniform
from reflex.tokenizer import load

# ---- choices ----


def test_choices_are_the_only_texts():
    choices = ["yes", "no", "not at all", "nö", "y", 'a"b', "x" * 70, "😀"]
    constraint, seen = asking(choices=choices), set()
    for seed in range(40):
        for rule in constrained.rules(TOKENIZER, seed).values():
            seen.add(constrained.complete(constraint, TOKENIZER, rule, 80, temperature=1.0, seed=seed).text)
    assert seen <= set(choices) and len(seen) > 5


def test_many_choices_that_begin_alike():
    choices = ["a" * n for n in range(1, 3000)]
    constraint = asking(LETTERS, choices=choices)
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
    constraint = asking(regex=r"\{\}")
    generation = constrained.complete(constraint, TOKENIZER, always(b"ab"), 10)
    assert (generation.text, generation.finish_reason) == ("{}", "stop")
    assert generation.session.plan.steps == len(generation.token_ids)


def test_only_ends_are_allowed_where_nothing_else_is():
    tokenizer = constrained.Tokenizer(extra=[], single=b"ab")
    constraint = asking(tokenizer, regex="ab?")
    generation = constrained.complete(constraint, tokenizer, always(b"b", tokenizer), 9)
    assert (generation.text, generation.finish_reason) == ("ab", "stop")
    generation = constrained.complete(constraint, tokenizer, always(b"<stop>", tokenizer), 9)
    assert (generation.text, generation.finish_reason) == ("a", "stop")
    generation = constrained.complete(constraint, tokenizer, always(b"<stop>", tokenizer), 1)
    assert (generation.text, generation.finish_reason) == ("a", "length")
    tokenizer = constrained.Tokenizer(extra=[b"ac"], single=b"a", ends=())
    generation = constrained.complete(asking(tokenizer, regex="a(cd)?"), tokenizer, always(b"a", tokenizer), 9)
    assert (generation.text, generation.finish_reason) == ("a", "stop"), "no token goes on, and there is no end token"


@pytest.mark.parametrize("pattern", ["[ab]*c", "(ab){2,}c", "a{3,9}|b{4}", "x(a|bb|ccc){1,5}yz", "(a{5}){1,4}", "aaaa(b|c*d)"])
def test_every_budget_from_the_shortest_on_is_met(pattern):
    constraint = asking(LETTERS, regex=pattern)
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
    constraint = asking(LETTERS, regex="(abab){5}")
    assert constraint.need(constraint.states.start) == 5
    with pytest.raises(InvalidInputError, match="no result") as found:
        constrained.begin(constraint, 4)
    assert found.value.expected == "at least 5 tokens"
    assert constrained.complete(constraint, LETTERS, always(b"a", LETTERS), 5).text == "abab" * 5


def test_bytes_without_a_token_of_their_own():
    tokenizer = constrained.Tokenizer(extra=["é".encode(), b"zq"], single=[c for c in range(128) if c not in b"zq"])
    for pattern, text in (("é{3}", "ééé"), ("[é€]a", "éa"), ("(z|zq|b)", None), ("zq{1,5}", "zq")):
        constraint = asking(tokenizer, regex=pattern)
        for rule in constrained.rules(tokenizer, 3).values():
            found = constrained.complete(constraint, tokenizer, rule, 5).text
            assert found == text if text else found in ("zq", "b")
    with pytest.raises(InvalidInputError, match="cannot spell"):
        constrained.begin(asking(tokenizer, regex="a€"), 50)


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
    constraint = asking(regex="a+")
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
    constraint = asking(tokenizer, regex="[a-h]")
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
    constraint = asking(regex="[ab]")
    row = array("f", [0.0]) * TOKENIZER.size
    row[TOKENIZER.pieces.index(b"c")] = math.nan
    assert constrained.begin(constraint, 1).pick(memoryview(row), Sampling(), 0) >= 0
    row[TOKENIZER.pieces.index(b"b")] = math.nan
    assert constrained.begin(constraint, 1).pick(memoryview(row), Sampling(), 0) == -1


def test_the_same_seed_gives_the_same_text_whatever_was_cached():
    rules = constrained.rules(TOKENIZER, 9)
    asked = {"regex": r"(\w+|\d{2,9}[,.;])*!"}
    warm = asking(**asked)
    for seed in range(10):
        again = constrained.complete(warm, TOKENIZER, rules["noise"], 40, temperature=1.0, seed=seed)
        assert (
            again.token_ids
            == constrained.complete(asking(**asked), TOKENIZER, rules["noise"], 40, temperature=1.0, seed=seed).token_ids
        )


def test_two_generations_may_share_a_constraint_and_states_may_be_forgotten(monkeypatch):
    from reflex.constrain import guide

    rules = constrained.rules(TOKENIZER, 4)
    asked = {"regex": r"([a-z]{1,9} ){3,40}\d{3}"}
    alone = [constrained.complete(asking(**asked), TOKENIZER, rules[name], 90).token_ids for name in ("noise", "longest")]
    monkeypatch.setattr(guide, "FULL", 20)
    monkeypatch.setattr(guide, "MASKS", 3)
    shared = asking(**asked)
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
    shared, alone = asking(regex=pattern), asking(regex=pattern)
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
