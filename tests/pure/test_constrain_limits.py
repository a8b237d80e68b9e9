"""Constraints that are made to hang or grow: work and states per token have limits, and texts satisfy them all the same."""

import constrained
import pytest
import regex
from constrained import LETTERS, TOKENIZER, asking, matches

from reflex.constrain import grammar_of
from reflex.constrain.guide import FRESH, WORK
from reflex.errors import InvalidInputError
from reflex.sample import Sampling

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
    "a{6000000}|",
    "b{3}|(a{300}){4000000}",
    "|".join("ab" * n for n in range(1, 300)),
]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_patterns_stay_within_their_limits(pattern):
    """Counted: places looked at and states made per token have a limit, and the text matches all the same."""
    constraint = asking(LETTERS, regex=pattern)
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
            assert regex.fullmatch(pattern.replace("000000", "0"), text.decode(), timeout=300)


@pytest.mark.parametrize(("limit", "value"), [("WORK", 0), ("FRESH", 0), ("WORK", 40)])
def test_a_token_is_left_whatever_the_limits_leave_out(monkeypatch, limit, value):
    """With no work allowed at all, only the shortest way is left, and every text still matches."""
    from reflex.constrain import guide

    monkeypatch.setattr(guide, limit, value)
    for pattern in ("[ab]{3,9}c", r"(foo|\d{2,5})+;", "é{2}x?", "(a|b)*a(a|b){5}"):
        for rule in constrained.rules(TOKENIZER, 1).values():
            generation = constrained.complete(asking(regex=pattern), TOKENIZER, rule, 12)
            assert regex.fullmatch(pattern, generation.text), (pattern, generation.text)


def test_repetitions_are_counted_not_copied():
    grammar = grammar_of(regex="(ab){0,1000000000}c{1000000}")
    assert len(grammar.kind) < 20
    with pytest.raises(InvalidInputError, match="no result of the constraint fits") as found:
        constrained.begin(constrained.bound(grammar, LETTERS), 50)
    assert "at least" in found.value.expected and found.value.found == 50


def test_empty_rounds_are_not_counted():
    constraint = asking(LETTERS, regex="((a?){0,1000000000}){0,1000000000}b?")
    assert matches(constraint, "aaaab") and not constraint.states.lost and constraint.states.work < 1000


@pytest.mark.parametrize("asked", [{"regex": "[^\\x00-\\u{10FFFF}]"}, {"regex": "a[^\\s\\S]"}])
def test_a_constraint_without_texts_is_refused(asked):
    with pytest.raises(InvalidInputError, match="no text satisfies"):
        asking(**asked)
