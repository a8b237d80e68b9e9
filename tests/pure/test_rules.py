"""The rules: their arithmetic, pmi and its prior, temperature, what no order may change; all of it found by enumeration."""

import json
import math
import random
from itertools import permutations

import pytest
from fakes import session

from reflex import rules
from reflex.cli import front, jsonline, system1
from reflex.errors import ContextOverflowError, InvalidInputError
from reflex.rules import RULES
from reflex.score import Candidate, score

PROMPT = "The capital of France is"
CANDIDATES = [" Paris", " London", " the city of light", "!", " Paname"]


def sums(prompt, candidates, **options):
    return [c.sum for c in score(session(), prompt, candidates, **options).candidates]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_one_field_and_decides_by_it(rule):
    decision = score(session(), PROMPT, CANDIDATES, rule=rule, temperature=2.0)
    values = [getattr(c, RULES[rule].field) for c in decision.candidates]
    weights = [math.exp(value / 2.0) for value in values]
    assert decision.rule == rule
    assert decision.best_index == values.index(max(values))
    assert [c.probability for c in decision.candidates] == pytest.approx([w / sum(weights) for w in weights])


def test_arithmetic_of_every_rule():
    decision = score(session(), PROMPT, CANDIDATES, rule="pmi")
    for c in decision.candidates:
        assert c.sum == pytest.approx(sum(c.logprobs))
        assert c.mean == pytest.approx(c.sum / len(c.token_ids))
        assert c.per_byte == pytest.approx(c.sum / len(c.text.encode()))
    unconditional = sums("\n", CANDIDATES)
    assert [c.pmi for c in decision.candidates] == [c.sum - u for c, u in zip(decision.candidates, unconditional, strict=True)]


def test_rules_change_the_winner():
    """Sum, mean, byte and pmi are four rules and not one: over some prompts each decides unlike each other."""
    found = {rule: [score(session(), f"{n} is", CANDIDATES, rule=rule).best_index for n in range(30)] for rule in RULES}
    assert len(set(map(tuple, found.values()))) == len(RULES)


def test_every_rule_is_found_by_enumeration():
    row = next(row for row in system1.PARAMETERS if row[0] == "--rule")
    assert row[1] == tuple(RULES) and row[2] == rules.DEFAULT and all(name in row[3] for name in RULES)
    assert {r.field for r in RULES.values()} <= set(Candidate.__slots__)
    for rule in RULES:
        _, values = front.parse(["system1", "m", "p", "--candidate", "a", "--rule", rule, "--prior", "x"])
        assert (values["rule"], values["prior"]) == (rule, "x")
    assert front.parse(["system1", "m", "p", "--candidate", "a", "--rule", "total"]) is None


# ---- pmi ----------------------------------------------------------------------------------------------------


def test_only_a_prior_costs_a_second_pass():
    passes = {}
    for name, options in [*((rule, {"rule": rule}) for rule in RULES), ("given", {"prior": "Answer:"})]:
        s = session()
        decision = score(s, PROMPT, CANDIDATES, **options)
        passes[name] = len(s.plan.calls)
        assert all((c.pmi is None) == (passes[name] == 1) for c in decision.candidates)
    assert passes == {"sum": 1, "mean": 1, "byte": 1, "pmi": 2, "given": 2}


def test_the_passes_of_pmi_evaluate_the_prior_and_the_prompt_once():
    s = session()
    decision = score(s, PROMPT, CANDIDATES, rule="pmi", prior="Answer:")
    branches = sum(len(c.token_ids) - 1 for c in decision.candidates)
    assert [rows for rows, _ in s.plan.calls] == [len(s.encode("Answer:")) + branches, decision.prompt_tokens + branches]


def test_the_prompt_is_cached_after_pmi():
    s = session()
    score(s, PROMPT, CANDIDATES, rule="pmi")
    assert s.sync(s.encode(PROMPT)) == len(s.encode(PROMPT)) - 1


def test_the_prior_is_the_begin_token_where_texts_start_with_it():
    s = session(add_bos=True)
    found = score(s, PROMPT, CANDIDATES, rule="pmi")
    for c in found.candidates:
        plain, values = session(), []
        for count in range(len(c.token_ids)):
            plain.sync([0, *c.token_ids[:count]])
            values += plain.plan.logprobs(0, [c.token_ids[count]])
        assert c.pmi == c.sum - math.fsum(values)


def test_a_prior_text_is_scored_like_a_prompt():
    found = score(session(), PROMPT, CANDIDATES, rule="pmi", prior="Answer:")
    assert [c.sum - c.pmi for c in found.candidates] == pytest.approx(sums("Answer:", CANDIDATES), abs=1e-12)
    assert not any("prior" in note for note in found.warnings)


def test_the_prompt_as_its_own_prior_adds_nothing():
    assert {c.pmi for c in score(session(), PROMPT, CANDIDATES, rule="pmi", prior=PROMPT).candidates} == {0.0}


def test_a_merged_seam_is_taken_off_the_prior_too():
    """` b` + `ad` after `It is a ` is scored from `It is a`; the prior `so: ` gives up the same blank."""
    merged = score(session(), "It is a ", ["bad", "x"], rule="pmi", prior="so: ")
    plain = score(session(), "It is a", [" bad", " x"], rule="pmi", prior="so:")
    assert [c.pmi for c in merged.candidates] == [c.pmi for c in plain.candidates]
    assert not any("prior" in note for note in merged.warnings)
    other = score(session(), "It is a ", ["bad", "x"], rule="pmi", prior="so:")
    assert [c.pmi for c in other.candidates] == [c.pmi for c in plain.candidates]
    assert any("the prior does not end in ' '" in note for note in other.warnings)
    only = score(session(), "It is a ", ["bad", "x"], rule="pmi", prior=" ")
    assert [c.pmi for c in only.candidates] == [c.pmi for c in score(session(), "It is a", [" bad", " x"], rule="pmi").candidates]


def test_other_tokens_after_the_prior_are_said():
    found = score(session(), "so:", ["don", "x"], rule="pmi", prior="in Lon")
    assert not any("other tokens after the prior" in note for note in found.warnings)
    found = score(session(), "so:", ["b", "x"], rule="pmi", prior="a")
    assert [c.token_ids for c in found.candidates] == [tuple(session().encode(text)) for text in ("b", "x")]
    assert any("candidate 0 is other tokens after the prior" in note for note in found.warnings)


def test_a_prior_that_does_not_fit_is_refused_before_work():
    s = session(context=40)
    with pytest.raises(ContextOverflowError):
        score(s, "a", ["b"], rule="pmi", prior="x" * 40)
    assert s.plan.calls == []


# ---- temperature, entropy, what no order may change -----------------------------------------------------------


@pytest.mark.parametrize("temperature", [1e-320, 1e-30, 0.01, 1, 3, 1e300])
@pytest.mark.parametrize("rule", RULES)
def test_any_temperature_gives_a_distribution_and_the_same_winner(rule, temperature):
    decision = score(session(), PROMPT, CANDIDATES, rule=rule, temperature=temperature)
    shares = [c.probability for c in decision.candidates]
    assert math.fsum(shares) == pytest.approx(1) and all(0 <= share <= 1 for share in shares)
    assert decision.best_index == score(session(), PROMPT, CANDIDATES, rule=rule).best_index
    assert 0 <= decision.entropy_bits <= math.log2(len(CANDIDATES)) + 1e-12
    assert decision.margin == pytest.approx(shares[decision.best_index] - sorted(shares)[-2])


@pytest.mark.parametrize("rule", RULES)
def test_no_order_of_candidates_changes_a_bit(rule):
    want = score(session(), PROMPT, CANDIDATES[:4], rule=rule)
    fields = {c.text: {**c.to_dict(), "index": 0} for c in want.candidates}
    for order in permutations(CANDIDATES[:4]):
        found = score(session(), PROMPT, order, rule=rule)
        assert {c.text: {**c.to_dict(), "index": 0} for c in found.candidates} == fields
        assert (found.best_text, found.entropy_bits, found.margin) == (want.best_text, want.entropy_bits, want.margin)


def test_softmax_of_a_thousand_scores_does_not_depend_on_order():
    rng = random.Random(3)
    scores = [rng.gauss(-20, 15) for _ in range(1000)]
    shares = dict(zip(scores, rules.softmax(scores, 1.0), strict=True))
    entropy = rules.entropy_bits(shares.values())
    for _ in range(5):
        rng.shuffle(scores)
        again = rules.softmax(scores, 1.0)
        assert again == [shares[score] for score in scores] and rules.entropy_bits(again) == entropy


def test_equal_scores_share_equally_and_the_first_wins():
    decision = score(session(), PROMPT, [" London", " Paris", " Paris", " London"], rule="mean")
    assert decision.candidates[0].probability == decision.candidates[3].probability
    assert decision.best_index in (0, 1)
    twins = score(session(), PROMPT, ["x", "x"])
    assert (twins.best_index, twins.margin, twins.entropy_bits) == (0, 0.0, 1.0)


def test_text_that_cannot_be_a_rule_is_refused():
    for name in ("", "SUM", "pm", None, 3):
        with pytest.raises(InvalidInputError, match="sum, mean, byte, pmi"):
            score(session(), PROMPT, CANDIDATES, rule=name)


# ---- records ---------------------------------------------------------------------------------------------------


def test_a_decision_is_json_and_a_frame_without_loss():
    decision = score(session(), PROMPT, ["", *CANDIDATES], rule="pmi")
    rows = decision.to_dict()["candidates"]
    assert json.loads(jsonline.encode(decision.to_dict())) == decision.to_dict()
    assert {tuple(row) for row in rows} == {Candidate.__slots__}, "every row has the same columns"
    assert [row["sum"] is None for row in rows] == [True] + [False] * 5


def test_notebooks_show_bars_and_at_most_forty_rows():
    decision = score(session(), PROMPT, CANDIDATES)
    page = decision._repr_html_()
    assert page.count("background:#4e79a7") == 5 and "pmi" not in page and f"<b>{decision.best_text}</b>" in page
    assert f"width:{8 * decision.best.probability:.2f}em" in page
    assert "pmi" in score(session(), PROMPT, CANDIDATES, rule="pmi")._repr_html_()
    many = score(session(context=300), PROMPT, [f"{n}" for n in range(200)])
    page = many._repr_html_()
    assert page.count("background:#4e79a7") == 40 and "160 less probable candidates" in page and f"<b>{many.best_text}</b>" in page
