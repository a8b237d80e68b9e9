"""bench/decisions.py: labelled files and what is wrong with them, the measures against hand-made numbers, the pictures."""

import argparse
import itertools
import json
import math
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path

import numpy as np
import pytest
from fakes import session

from reflex import api
from reflex.errors import InputOutputError, InvalidInputError
from reflex.rules import RULES, score_of
from reflex.score import score

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import decision_picture, decisions, labels, metrics  # noqa: E402

LABELLED = sorted((ROOT / "bench" / "labelled").glob("*.jsonl"))
PLAIN = {"prompt": "The sky is", "candidates": [" blue", " green"], "answer": 0}
LISTED = {"prompt": "Which?\n{options}\nAnswer:", "options": ["a dog", "a cat", "a hen"], "answer": "a cat"}


def written(folder, *rows):
    path = folder / "questions.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


# ---- labelled files ------------------------------------------------------------------------------------------


def test_the_documented_lines_can_be_read(tmp_path):
    """Those of the module and those of docs/decisions.md."""
    for text in (labels.__doc__, (ROOT / "docs" / "decisions.md").read_text()):
        rows = [line.strip() for line in text.splitlines() if line.startswith('    {"task"')]
        items = labels.read(written(tmp_path, *rows))
        assert [item.task for item in items] == ["capital", "quiz"]
        assert (items[0].answer, items[0].listed, items[1].answer, items[1].listed) == (1, False, 0, True)


@pytest.mark.parametrize("path", LABELLED, ids=lambda path: path.stem)
def test_every_labelled_file_of_ours_is_whole(path):
    items = labels.read(path)
    assert len(items) >= 20
    assert len({item.asked(item.orders("given")[0])[0] + item.scored for item in items}) == len(items), "no question twice"
    if not items[0].listed:
        assert all(text[0] == " " for item in items for text in item.texts)
    tasks = {item.task for item in items}
    for task in tasks:
        answers = [item.answer for item in items if item.task == task]
        most = max(answers.count(place) for place in answers)
        assert most <= 0.6 * len(answers), "the right answers stand in many places"


def test_the_set_has_the_promised_size_and_tasks():
    items = [item for path in LABELLED for item in labels.read(path)]
    assert 150 <= len(items) <= 300
    assert {"sentiment", "topic", "capital", "facts", "tool"} <= {item.task for item in items}


def test_prompts_and_orders(tmp_path):
    path = written(tmp_path, PLAIN, LISTED, {**LISTED, "scored": "text", "task": "by text", "prior": "Answer:"})
    plain, listed, by_text = labels.read(path)
    assert plain.orders("all") == [(0, 1)] and plain.asked((0, 1)) == ("The sky is", [" blue", " green"])
    assert listed.answer == 1 and (plain.task, by_text.task, by_text.prior) == ("questions", "by text", "Answer:")
    assert listed.orders("rotations") == [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    assert len(listed.orders("all")) == 6 and listed.orders("given") == [(0, 1, 2)]
    assert listed.asked((1, 2, 0)) == ("Which?\nA. a cat\nB. a hen\nC. a dog\nAnswer:", [" A", " B", " C"])
    assert by_text.asked((2, 0, 1))[1] == [" a hen", " a dog", " a cat"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("[" * 100000, "not JSON"),
        ({**PLAIN, "anwser": 0}, "did you mean answer?"),
        ({"candidates": [" a", " b"], "answer": 0}, "prompt is missing"),
        ({"prompt": "x", "candidates": [" a", " b"]}, "answer is missing"),
        ({"prompt": "x", "answer": 0}, "neither"),
        ({**LISTED, "candidates": [" a", " b"]}, "both"),
        ({**PLAIN, "prompt": 7}, "prompt has the wrong type"),
        ({**PLAIN, "answer": True}, "answer has the wrong type"),
        ({**PLAIN, "answer": 2}, "0 to 1"),
        ({**PLAIN, "answer": -1}, "0 to 1"),
        ({**PLAIN, "answer": " red"}, "none of the texts"),
        ({**PLAIN, "candidates": [" a", ""]}, "no text"),
        ({**PLAIN, "candidates": [" a", 3]}, "no text"),
        ({**PLAIN, "candidates": [" a"]}, "needs a choice"),
        ({**PLAIN, "candidates": [" a", " a"]}, "the same"),
        ({**PLAIN, "scored": "letter"}, "scored has no meaning"),
        ({**LISTED, "scored": "word"}, "scored has no meaning"),
        ({**LISTED, "options": [f"o{n}" for n in range(27)]}, "26"),
        ({**PLAIN, "prompt": "{options}"}, "do not fit"),
        ({**LISTED, "prompt": "none"}, "do not fit"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = written(tmp_path, PLAIN, "", line)
    with pytest.raises(InvalidInputError) as error:
        labels.read(path)
    assert words in str(error.value) and f"{path} line 3" in str(error.value) and "\n" not in str(error.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputOutputError, match="cannot read"):
        labels.read(tmp_path / "nothing.jsonl")
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n \n")
    with pytest.raises(InvalidInputError, match="holds no questions"):
        labels.read(path)
    path.write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        labels.read(path)
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(PLAIN).encode() + b"\r\n")
    assert labels.read(path)[0].prompt == "The sky is", "a byte order mark and other line ends are no fault"


def test_a_bad_file_is_one_line_of_the_command(tmp_path):
    path = written(tmp_path, PLAIN, '{"prompt": ')
    done = subprocess.run([sys.executable, ROOT / "bench" / "decisions.py", "none.gguf", path], capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "line 2" in done.stderr


def test_too_many_orders_are_refused(tmp_path):
    (item,) = labels.read(written(tmp_path, {**LISTED, "options": list("abcde"), "answer": 0}))
    with pytest.raises(InvalidInputError, match="rotations"):
        item.orders("all")


# ---- measures ------------------------------------------------------------------------------------------------

SCORES = metrics.padded([[math.log(0.7), math.log(0.3)], [math.log(0.6), math.log(0.3), math.log(0.1)], [0.0, 0.0]])
ANSWERS = np.array([0, 1, 1])


def test_measures_by_hand():
    found = metrics.Predictions(SCORES, ANSWERS)
    assert found.best.tolist() == [0, 0, 0] and found.right.tolist() == [1, 0, 0], "the first wins ties"
    assert found.brier == pytest.approx([0.09 + 0.09, 0.36 + 0.49 + 0.01, 0.5])
    assert found.log_loss == pytest.approx([-math.log(0.7), -math.log(0.3), math.log(2)])
    row = metrics.intervals(found, metrics.weights(np.arange(3), 500, 1))
    assert row["accuracy"][0] == pytest.approx(1 / 3, abs=1e-4) and row["accuracy"][1:] == [0.0, 1.0]
    assert row["brier"][0] == pytest.approx((0.18 + 0.86 + 0.5) / 3, abs=1e-4)
    assert row["ece"][0] == pytest.approx((0.3 + 0.6 + 0.5) / 3, abs=1e-4), "three bins of one decision each"


def test_a_certain_mistake_costs_a_finite_log_loss():
    found = metrics.Predictions(metrics.padded([[0.0, -5000.0]]), np.array([1]))
    assert found.log_loss[0] == pytest.approx(-math.log(metrics.LEAST)) and found.brier[0] == pytest.approx(2)


def test_perfectly_calibrated_decisions_have_no_calibration_error():
    rng = np.random.default_rng(5)
    share = rng.uniform(0.5, 1, 40000)
    scores = np.log(np.stack([share, 1 - share], 1))
    answers = (rng.uniform(size=40000) > share).astype(int)
    row = metrics.intervals(metrics.Predictions(scores, answers), metrics.weights(np.arange(40000), 3, 1))
    assert row["ece"][0] < 0.02
    wrong = metrics.intervals(metrics.Predictions(scores * 5, answers), metrics.weights(np.arange(40000), 3, 1))
    assert wrong["ece"][0] > 0.1
    found = metrics.fitted(scores * 5, answers, np.arange(40000), metrics.weights(np.arange(40000), 3, 1))
    assert found["temperature"] == pytest.approx(5, rel=0.1) and found["ece"][0] < 0.02


def test_a_temperature_is_judged_on_questions_it_was_not_fitted_on():
    """Even questions are always right, odd ones right half of the time: each half wants the other's opposite."""
    items = np.arange(400)
    scores = np.tile([1.0, 0.0], (400, 1))
    answers = np.where(items % 2 == 0, 0, items // 2 % 2)
    weight = metrics.weights(items, 3, 1)
    found = metrics.fitted(scores, answers, items, weight)
    lost = metrics.intervals(metrics.Predictions(scores, answers), weight)["log_loss"][0]
    assert found["log_loss"][0] > 2 * lost


def test_a_question_in_many_orders_counts_once():
    items = np.array([0, 0, 0, 0, 1])
    plain, drawn = metrics.weights(items, 200, 3)
    assert plain[0].tolist() == [0.125] * 4 + [0.5]
    assert np.allclose(drawn.sum(1), 1)
    assert {tuple(row) for row in drawn} == {(0.25, 0.25, 0.25, 0.25, 0.0), (0.125,) * 4 + (0.5,), (0.0,) * 4 + (1.0,)}


def test_intervals_are_seeded_and_cover():
    """Of 200 samples of 100 fair coins, about 95 % of the intervals hold one half."""
    rng = np.random.default_rng(9)
    held = 0
    for _ in range(200):
        flips = rng.integers(0, 2, 100).astype(float)
        _, drawn = metrics.weights(np.arange(100), 400, 1)
        _, low, high = metrics.interval(flips.mean(), drawn @ flips)
        held += low <= 0.5 <= high
    assert 180 <= held <= 199
    first, again = (metrics.weights(np.arange(50), 10, 4)[1] for _ in range(2))
    assert (first == again).all() and (first != metrics.weights(np.arange(50), 10, 5)[1]).any()


def test_order_bias_of_a_rule_that_looks_at_the_place_and_of_one_that_does_not():
    orders = [tuple((place + turn) % 4 for place in range(4)) for turn in range(4)] * 2
    items, answers = np.repeat([0, 1], 4), np.array([order.index(2) for order in orders])
    weight = metrics.weights(items, 50, 1)
    always_a = metrics.Predictions(np.tile([1.0, 0, 0, 0], (8, 1)), answers)
    row = metrics.order_bias(always_a, answers, orders, items, weight)
    assert row["changed"][0] == 1 and row["chosen"] == [1, 0, 0, 0] and row["right"] == [1, 0, 0, 0]
    fair = metrics.Predictions(np.array([[1.0 if option == 2 else 0 for option in order] for order in orders]), answers)
    row = metrics.order_bias(fair, answers, orders, items, weight)
    assert row["changed"][0] == 0 and row["chosen"] == [0.25] * 4 and row["right"] == [1] * 4 and row["averaged"][0] == 1
    leaning = np.array([[(option == 2) + 2.0 * (place == 0) for place, option in enumerate(order)] for order in orders])
    row = metrics.order_bias(metrics.Predictions(leaning, answers), answers, orders, items, weight)
    assert row["changed"][0] == 1 and row["averaged"][0] == 1, "averaging over the orders takes the lean away"


# ---- the whole -----------------------------------------------------------------------------------------------


class File:
    def close(self):
        return None


def options(**given):
    plain = {"temperature": 1.0, "terminator": "", "prior": "", "orders": "rotations", "resamples": 50, "seed": 1}
    return argparse.Namespace(**{**plain, **given})


@pytest.fixture
def body(tmp_path):
    s = session(context=200)
    rows = [{"task": "sky", "prompt": f"{n} is", "candidates": [" the", " Paris", "!?"], "answer": n % 3} for n in range(12)]
    rows += [{**LISTED, "task": "list", "prompt": f"{n} {LISTED['prompt']}"} for n in range(6)]
    items = labels.read(written(tmp_path, *rows))
    found = decisions.answered(api.Model(File(), s.tokenizer, s), items, options(), list(RULES))
    return {"model": {"title": "Fake <1>"}, **decisions.summary(found, options()), "raw": decisions.raw(found, 1.0)}


def test_scores_are_those_of_system1(body):
    for n in range(12):
        for rule in RULES:
            want = score(session(context=200), f"{n} is", [" the", " Paris", "!?"], rule=rule)
            assert body["raw"][rule]["best"][n] == want.best_index
            assert body["raw"][rule]["p_best"][n] == round(want.best.probability, 4)
            assert score_of(want.best, rule) is not None


def test_every_task_rule_and_order_is_in_the_summary(body):
    assert list(body["tasks"]) == ["sky", "list"] and list(body["orders"]) == ["list"]
    assert (body["all"]["n"], body["all"]["predictions"]) == (18, 12 + 6 * 3)
    assert body["raw"]["answer"][12:15] == [1, 0, 2] and body["raw"]["question"][12:15] == [12] * 3, "where the cat stands"
    assert body["tasks"]["sky"]["chance"] == pytest.approx(1 / 3, abs=1e-3)
    for part in [body["all"], *body["tasks"].values()]:
        assert list(part["rules"]) == list(RULES)
        for row in part["rules"].values():
            assert row["accuracy"][1] <= row["accuracy"][0] <= row["accuracy"][2]
            assert sum(total for total, _, _ in row["bins"]) == pytest.approx(1, abs=1e-3)
        assert part["rules"]["sum"]["lead"] == [0, 0, 0]
    json.dumps(body)


def test_a_rule_without_prior_makes_one_pass(tmp_path):
    for rules, passes in ((["sum"], 1), (["sum", "pmi"], 2)):
        s = session(context=200)
        items = labels.read(written(tmp_path, PLAIN))
        decisions.answered(api.Model(File(), s.tokenizer, s), items, options(), rules)
        assert len(s.plan.calls) == passes


@pytest.mark.parametrize("name", decision_picture.PICTURES)
def test_pictures_are_whole_and_name_every_model(body, name):
    other = {**body, "model": {"title": "Second"}}
    text = decision_picture.PICTURES[name]([body, other])
    xml.dom.minidom.parseString(text)
    assert "Fake &lt;1&gt;" in text and "Second" in text and "nan" not in text
    if name != "decisions-places":
        assert all(f">{rule}<" in text for rule in RULES)


def test_dots_lie_where_the_bins_are(body):
    text = decision_picture.reliability([body])
    dots = text.count("<circle")
    assert dots == sum(len(row["bins"]) for row in body["all"]["rules"].values())
    for rule, other in itertools.pairwise(RULES):
        assert text.index(f">{rule}<") < text.index(f">{other}<")
