"""Records as rows: dictionaries without pandas, frames with it, and one error that names the extra where it is missing."""

import sys

import pytest
from fakes import session

from reflex import api
from reflex.errors import InvalidInputError
from reflex.records import Record


class NoFile:
    def close(self):
        pass


@pytest.fixture
def results():
    """One of each kind of result, with the number of its rows."""
    s = session()
    model = api.Model(NoFile(), s.tokenizer, s)
    prompt = "The capital of France is"
    return {
        "decision": (model.system1(prompt, [" Paris", " London", " b"]), 3),
        "logprobs": (model.logprobs("abcd Paris"), len(model.tokenize("abcd Paris"))),
        "generated": (model.generate(prompt, max_tokens=3), 1),
        "checked": (model.check(model, prompt, steps=2), 2),
    }


KINDS = ("decision", "logprobs", "generated", "checked")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_dictionaries(results, kind):
    record, count = results[kind]
    rows = record.table()
    assert len(rows) == count and all(list(row) == list(rows[0]) for row in rows)


def test_rows_say_what_the_record_says(results):
    decision, logprobs = results["decision"][0], results["logprobs"][0]
    assert [row["probability"] for row in decision.table()] == [c.probability for c in decision.candidates]
    assert decision.table() == decision.to_dict()["candidates"]
    rows = logprobs.table()
    assert [tuple(row.values()) for row in rows] == list(zip(logprobs.token_ids, logprobs.texts, logprobs.logprobs, strict=True))
    assert rows[0] == {"token_id": logprobs.token_ids[0], "text": logprobs.texts[0], "logprob": None}
    assert sum(row["logprob"] for row in rows[1:]) == pytest.approx(logprobs.sum)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_have_the_same_rows(results, kind):
    pytest.importorskip("pandas")
    record, count = results[kind]
    frame = record.to_pandas()
    assert list(frame.columns) == list(record.table()[0]) and len(frame) == count
    column = {"decision": "probability", "logprobs": "text", "generated": "text", "checked": "difference"}[kind]
    assert frame[column].tolist() == [row[column] for row in record.table()]


@pytest.mark.parametrize("kind", KINDS)
def test_without_pandas_one_error_names_the_extra(results, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInputError, match=r"needs pandas.*pip install 'reflex-gguf\[lab\]'"):
        results[kind][0].to_pandas()


def test_a_broken_pandas_is_no_missing_one(results, monkeypatch, tmp_path):
    (tmp_path / "pandas.py").write_text("import a_part_that_is_missing\n")
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_part_that_is_missing"):
        results["decision"][0].to_pandas()


def test_notebooks_draw_the_probabilities_of_a_decision(results):
    decision = results["decision"][0]
    page = decision._repr_html_()
    for candidate in decision.candidates:
        assert f"width:{8 * candidate.probability:.2f}em" in page, "a bar as long as the probability"


def test_dictionaries_hold_no_arrays():
    numpy = pytest.importorskip("numpy")

    class Arrays(Record):
        __slots__ = ("a", "b")

    assert Arrays(numpy.arange(2), {"c": (numpy.float32(1), b"\1")}).to_dict() == {"a": [0, 1], "b": {"c": [1.0, [1]]}}
