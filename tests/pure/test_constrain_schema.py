"""JSON schemas: whatever the logits want, the text validates; what cannot be enforced is refused by name."""

import datetime
import json
import re

import constrained
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from reflex.constrain import grammar_of
from reflex.errors import InvalidInputError

BATCHES, EACH, MOST = 10, 55, 150
TOKENIZER = constrained.Tokenizer()
LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
CHECKER = FormatChecker(["date", "email", "ipv4", "ipv6", "uuid"])


@CHECKER.checks("date-time", raises=ValueError)
def date_time(text):
    return not isinstance(text, str) or "T" in text and datetime.datetime.fromisoformat(text).tzinfo is not None


@CHECKER.checks("time", raises=ValueError)
def time(text):
    return not isinstance(text, str) or datetime.time.fromisoformat(text).tzinfo is not None


@CHECKER.checks("hostname")
def hostname(text):
    return not isinstance(text, str) or len(text) < 254 and re.fullmatch(rf"{LABEL}(\.{LABEL})*", text) is not None


def validator(schema):
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=CHECKER)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_schemas_always_validate(batch):
    """Counted: at least 50 of each 55 schemas can be satisfied within MOST tokens; every text of every rule validates."""
    texts, satisfied = 0, 0
    for number in range(EACH):
        seed = batch * EACH + number
        schema = constrained.Generator(seed).document()
        rules = constrained.rules(TOKENIZER, seed)
        names = list(rules)
        try:
            constraint = constrained.bound(grammar_of(json_schema=schema), TOKENIZER)
            constrained.begin(constraint, MOST)
        except InvalidInputError as error:
            assert "cannot be enforced" not in str(error) or "alternatives" in str(error), (schema, str(error))
            continue
        satisfied += 1
        judge = validator(schema)
        for turn in range(3):
            rule = names[(seed + 3 * turn) % len(names)]
            generation = constrained.complete(constraint, TOKENIZER, rules[rule], MOST, temperature=turn % 2, seed=seed)
            errors = list(judge.iter_errors(json.loads(generation.text)))
            assert not errors, (seed, rule, schema, generation.text, errors[0].message)
            texts += 1
        constraint.close()
    assert satisfied >= 50 and texts == 3 * satisfied
