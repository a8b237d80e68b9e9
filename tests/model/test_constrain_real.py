"""Constrained generation with real models: whole vocabularies against the tokenizer, and results that validate."""

import json
import re

import constrained
import pytest
import real
from jsonschema import Draft202012Validator

import reflex
from reflex.constrain import grammar_of
from reflex.gguf.reader import open_model
from reflex.tokenizer import load

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "job": {"enum": ["baker", "pilot", "teacher"]},
        "children": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["name", "age", "job"],
    "additionalProperties": False,
}
PROMPT = "Anna is a teacher. She is 34 years old and has two children, Ben and Lea.\nAs JSON: "


@pytest.mark.parametrize("name", real.GOLDEN)
def test_words_are_the_pieces_of_the_tokenizer(name):
    file = open_model(str(real.locate(name)))
    tokenizer = load(file)
    constrained.check_words(tokenizer, tokenizer.size)
    tokenizer.close()


@pytest.mark.parametrize("name", real.GOLDEN)
def test_hostile_logits_over_the_whole_vocabulary(name):
    """Random schemas and patterns; the texts validate whatever the logits want."""
    with reflex.load(str(real.locate(name)), backend="cpu", context=64, threads=1) as model:
        tokenizer = model.tokenizer
        tokenizer.pieces = [tokenizer.piece(token, False) for token in range(tokenizer.size)]
        rules = constrained.rules(tokenizer, 1)
        names = list(rules)
        for seed in range(12):
            schema = constrained.Generator(seed).document()
            constraint = constrained.bound(grammar_of(json_schema=schema), tokenizer)
            text = constrained.complete(
                constraint, tokenizer, rules[names[seed % len(names)]], 80, temperature=seed % 2, seed=seed
            ).text
            assert Draft202012Validator(schema).is_valid(json.loads(text)), (schema, text)
            constraint.close()
        constraint = constrained.bound(grammar_of(regex=r"(\w+ ){2,5}\d{3}"), tokenizer)
        for rule in rules.values():
            assert re.fullmatch(r"(\w+ ){2,5}\d{3}", constrained.complete(constraint, tokenizer, rule, 40).text)


@pytest.mark.parametrize("name", real.GOLDEN)
def test_a_model_fills_in_a_schema(name):
    with reflex.load(str(real.locate(name)), backend="cpu", context=256, threads=2) as model:
        result = model.generate(PROMPT, json_schema=PERSON, max_tokens=100)
        assert result.finish_reason == "stop"
        found = json.loads(result.text)
        Draft202012Validator(PERSON).validate(found)
        if name == "qwen2":  # the others are too small to read
            assert (found["age"], found["job"]) == (34, "teacher"), "the model still chooses"
        assert model.generate("Is the sky green? Answer yes or no:", choices=[" yes", " no"]).text in (" yes", " no")
        date = model.generate("Christmas Day of 2020 as year-month-day:", regex=r" \d{4}-\d{2}-\d{2}", max_tokens=12).text
        assert re.fullmatch(r" \d{4}-\d{2}-\d{2}", date)
