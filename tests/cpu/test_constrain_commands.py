"""Constraints on the command line and in Python, on a tiny model: results, errors before any work, and what they import."""

import json
import re

import process
import pytest
import tiny
from jsonschema import Draft202012Validator
from test_cold import FORBIDDEN, STANDARD, watched

import reflex

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"items": {"enum": ["x", "y"]}},
    },
    "required": ["name", "age"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path)
    path.with_suffix(".json").write_text(json.dumps(SCHEMA, indent=2))
    return path


def text_of(*argv, code=0):
    done = process.reflex("generate", *argv)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() if code == 0 else done.stderr.decode()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_three_options(model, backend):
    common = (model, "The quick brown", "--backend", backend, "--temperature", "1", "--seed", "5")
    assert text_of(*common, "--choices", " fox", "--choices", " dog")[:-1] in (" fox", " dog")
    assert re.fullmatch(r"[a-f]{3}-\d+\n", text_of(*common, "--regex", r"[a-f]{3}-\d+", "--max-tokens", "20"))
    text = text_of(*common, "--json-schema", model.with_suffix(".json"), "--max-tokens", "60")
    Draft202012Validator(SCHEMA).validate(json.loads(text))


def test_backends_agree(model):
    schema = model.with_suffix(".json")
    texts = {text_of(model, "The fox", "--backend", b, "--json-schema", schema, "--max-tokens", "50") for b in ("cpu", "reference")}
    assert len(texts) == 1


def test_json_and_logprobs_are_the_models_own(model):
    done = process.reflex("generate", model, "The", "--choices", " fox", "--json", "--logprobs")
    *tokens, result = (json.loads(line) for line in done.stdout.splitlines())
    assert result["finish_reason"] == "stop" and result["text"] == " fox"
    with reflex.load(str(model), backend="cpu") as opened:
        wanted = opened.session("The").logprobs([token["id"] for token in tokens]).logprobs
        assert [token["logprob"] for token in tokens] == pytest.approx(list(wanted), abs=1e-4)


def test_the_replacement_character_is_a_character_like_any_other(model):
    """Text and JSON show U+FFFD for bytes that are no text; where the text itself has it, it stays what it is."""
    mark = " a\ufffd b"
    assert text_of(model, "The\ufffd", "--choices", mark) == mark + "\n"
    done = process.reflex("generate", model, "The\ufffd", "--choices", mark, "--json", "--logprobs")
    *tokens, result = (json.loads(line) for line in done.stdout.splitlines())
    assert result["text"] == mark and "".join([token["text"] for token in tokens]) == mark
    done = process.reflex("system1", model, "The\ufffd", "--candidate", mark, "--candidate", " fox", "--json")
    assert mark in [candidate["text"] for candidate in json.loads(done.stdout)["candidates"]], done.stdout


@pytest.mark.parametrize(
    ("words", "why", "code"),
    [
        (("--regex", "(a"), "not closed", 2),
        (("--regex", "a", "--choices", "b"), "one constraint at a time", 2),
        (("--json-schema", "/nowhere.json"), "cannot read the JSON schema", 8),
        (("--regex", "a{500}", "--max-tokens", "3"), "no result of the constraint fits", 2),
        (("--choices", "a", "--stop", "b"), "stop text", 2),
    ],
)
def test_errors_come_before_any_work(model, words, why, code):
    error = text_of(model, "The", *words, code=code)
    assert why in error and len(error.splitlines()) == 1


def test_a_constraint_imports_nothing_slow(model):
    schema = str(model.with_suffix(".json"))
    for words in (("--choices", " a"), ("--regex", "a+"), ("--json-schema", schema)):
        _, modules, _ = watched("generate", model, "The", "--max-tokens", "60", *words)
        assert not modules & FORBIDDEN
        assert {module for module in modules if not module.startswith("reflex")} <= STANDARD | {"_heapq", "_json"}


def test_python(model):
    with reflex.load(str(model), backend="cpu", context=256) as opened:
        assert opened.generate("The", choices=["yes", "no"]).text in ("yes", "no")
        constraint = opened.constraint(json_schema=SCHEMA)
        texts = {opened.generate("The", constraint=constraint, temperature=3, seed=n, max_tokens=50).text for n in range(16)}
        for text in texts:
            Draft202012Validator(SCHEMA).validate(json.loads(text))
        assert len(texts) > 3
        events = list(opened.generate("The", regex="[ab]{4}", stream=True))
        assert re.fullmatch("[ab]{4}", "".join(event.text for event in events))
        constraint.close()
        with pytest.raises(reflex.ReflexError, match="at a time"):
            opened.generate("The", regex="a", choices=["b"])
        with pytest.raises(reflex.ReflexError, match="at a time"):
            opened.generate("The", regex="a", constraint=opened.constraint(choices=["b"]))
