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
    return not isinstance(text, str) or ("T" in text and datetime.datetime.fromisoformat(text).tzinfo is not None)


@CHECKER.checks("time", raises=ValueError)
def time(text):
    return not isinstance(text, str) or datetime.time.fromisoformat(text).tzinfo is not None


@CHECKER.checks("hostname")
def hostname(text):
    return not isinstance(text, str) or (len(text) < 254 and re.fullmatch(rf"{LABEL}(\.{LABEL})*", text) is not None)


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


def judge(schema):
    """A function: whether a text is one that the schema lets through."""
    constraint = constrained.bound(grammar_of(json_schema=schema), TOKENIZER)

    def allowed(text):
        states, state = constraint.states, constraint.states.start
        for byte in text.encode():
            state = states.step(state, byte)
            if state < 0:
                return False
        return states.ends[state]

    return allowed


NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}},
    "required": ["v"],
    "additionalProperties": False,
}
# schema -> (texts that may be written, texts that may not)
LANGUAGES = [
    ({"type": "integer", "exclusiveMinimum": 2.5, "exclusiveMaximum": 4.5}, ["3", "4"], ["2", "5"]),
    ('{"type": "number", "exclusiveMaximum": 0.10000000000000000001, "minimum": 0}', ["0.099", "0"], ["0.1", "0.10"]),
    ('{"type": "number", "maximum": 0.10000000000000000001, "minimum": 0}', ["0.1"], ["0.11"]),
    (True, ["1", "null", '{"a":[{}]}', '"\\u0001é\\n"', "[[],{}]"], ["{}{}", "[1, 2]", "01", "-", "tru", '"\n"', '"\\u00e9"', ""]),
    ({}, ["-1.5e+3", "false"], [".5", "1.", "1e", "+1"]),
    ({"const": 1}, ["1"], ["1.0", "true"]),
    (
        {"enum": [1, True, None, "x", [1, {"a": 2}]], "type": ["boolean", "array", "null"]},
        ["true", "null", '[1,{"a":2}]'],
        ["1", '"x"'],
    ),
    ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2.0, 3, True]}, {"maximum": 2.5}]}, ["2"], ["3", "1", "true", "2.0"]),
    ({"minimum": 3, "exclusiveMinimum": 3, "maximum": 5, "type": "integer"}, ["4", "5"], ["3", "6", "-4", "04"]),
    ({"exclusiveMinimum": 3, "minimum": 3, "maximum": 5, "type": "integer"}, ["4", "5"], ["3"]),
    (
        {"allOf": [{"minimum": 2}, {"minimum": 7}, {"minimum": 4}, {"maximum": 9}, {"maximum": 8}], "type": "integer"},
        ["7", "8"],
        ["6", "9"],
    ),
    ({"type": "integer", "minimum": -12, "maximum": 105}, ["-12", "0", "105", "99", "-9"], ["-13", "106", "-0", "1000"]),
    ({"type": "integer", "multipleOf": 7, "minimum": 1}, ["7", "700"], ["0", "8", "-7"]),
    ({"type": "integer", "multipleOf": 5000, "minimum": 1, "maximum": 20000}, ["5000", "20000"], ["0", "500"]),
    ({"type": "number", "minimum": 0.25, "exclusiveMaximum": 1}, ["0.25", "0.9", "0.99999"], ["0.2", "1", "1.0", "0", "0.249"]),
    ({"type": "number", "maximum": -0.5, "minimum": -1e300}, ["-0.5", "-100"], ["-0.4", "0.5", "-0"]),
    ({"type": "number", "exclusiveMaximum": 0.1000000000000000055}, ["0.09999"], ["0.1"]),
    ({"type": "integer", "minimum": 10**30}, ["1" + "0" * 30, "9" * 31], ["9" * 30]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"é€😀"', '"\\n\\""'], ['"a"', '"abcd"', "ab"]),
    ({"pattern": "b"}, ['"abc"', '"b"'], ['"ac"', "1"]),
    ({"pattern": "^b|c$"}, ['"bx"', '"xc"'], ['"xb"', '"cx"']),
    ({"type": "string", "pattern": "^[^a]{2}$", "maxLength": 2, "minLength": 1}, ['"\\"\\\\"', '"\\u0000b"'], ['"ab"', '"bbb"']),
    ({"type": "string", "pattern": "^a+$", "maxLength": 3, "minLength": 2}, ['"aa"', '"aaa"'], ['"a"', '"aaaa"', '"ab"']),
    ({"type": "string", "pattern": "b", "maxLength": 3}, ['"b"', '"xb"', '"\\n\\"b"'], ['"xxxb"', '"aaa"', '""']),
    ({"type": "string", "pattern": "^(ab?|c{2,3})*$", "minLength": 5}, ['"ababa"', '"ccacc"'], ['"abab"', '"ccccb"', '"aaac"']),
    (
        {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
        ["[null]", "[null,null]"],
        ["[]", "[null,null,null]", "[null,]"],
    ),
    ({"prefixItems": [{"const": 1}, {"const": 2}]}, ["[]", "[1]", "[1,2]"], ["[1,2,3]", "[2]"]),
    ({"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 2}, ["[1,2]", "[1,2,2]"], ["[1]", "[1,1]"]),
    ({"prefixItems": [{"const": 1}], "minItems": 2}, ['[1,"x"]'], ["[1]"]),
    ({"items": [{"const": 1}], "additionalItems": False}, ["[1]", "[]"], ["[1,1]"]),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, ["[]", "[3]"], ["[3,3]"]),
    (
        {"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]},
        ['{"b":2}', '{"a":1,"b":2}'],
        ["{}", '{"a":1}', '{"b":2,"a":1}', "3"],
    ),
    ({"properties": {}, "type": "object"}, ["{}"], ['{"a":1}']),
    ({"type": "object"}, ["{}", '{"a":1,"b":{}}'], ['{"a":}', '{"a\\n":1}', "{a:1}"]),
    (
        {"additionalProperties": {"const": 1}, "properties": {"ab": {"const": 2}, "a": {"const": 3}}},
        ['{"ab":2}', '{"ab":2,"abc":1,"x":1}', '{"b":1}'],
        ['{"ab":1}', '{"x":1,"ab":2}', '{"a":1}', '{"":2}'],
    ),
    ({"required": ["x"], "additionalProperties": {"const": 1}}, ['{"x":1}', '{"x":1,"y":1}'], ["{}", '{"y":1}', '{"x":2}']),
    ({"properties": {"a": True, "b": True}, "minProperties": 1, "additionalProperties": False}, ['{"a":1}'], ["{}"]),
    ({"properties": {"a": {"const": 1}, "b": {"const": 1}}, "maxProperties": 1}, ['{"a":1}', "{}"], ['{"a":1,"b":1}']),
    (
        {
            "allOf": [
                {"properties": {"a": {"minimum": 1}}, "additionalProperties": {"maximum": 3}},
                {"properties": {"b": {"type": "integer"}}},
            ],
            "required": ["b"],
            "type": "object",
        },
        ['{"b":3}'],
        ['{"b":4}', '{"b":3,"c":4}'],
    ),
    (
        {
            "allOf": [
                {"properties": {"a": {"minimum": 1}}},
                {"properties": {"a": {"maximum": 2, "type": "integer"}}, "required": ["a"]},
            ]
        },
        ['{"a":1}', '{"a":2}'],
        ['{"a":0}', '{"a":3}', "{}"],
    ),
    (
        {"allOf": [{"properties": {"a": True}, "additionalProperties": False}, {"properties": {"b": True}}], "type": "object"},
        ["{}", '{"a":1}'],
        ['{"b":1}'],
    ),
    ({"anyOf": [{"const": 1}, {"type": "string"}], "maxLength": 1}, ["1", '"a"'], ["2", '"ab"']),
    ({"anyOf": [{"minimum": 3}, {"maximum": -3}], "type": "integer"}, ["3", "-3"], ["2", '"a"']),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["1", '"a"'], ["null"]),
    ({"oneOf": [{"const": 1}, {"const": 2}, {"enum": [3, 4]}]}, ["1", "4"], ["5"]),
    ({"oneOf": [{"type": "number", "maximum": 1}, {"type": "number", "exclusiveMinimum": 1}]}, ["1", "2"], ["null"]),
    (
        {
            "oneOf": [
                {"properties": {"a": True}, "required": ["a"], "additionalProperties": False},
                {"properties": {"b": True}, "required": ["b"]},
            ]
        },
        ['{"a":1}', '{"b":1}'],
        ["{}"],
    ),
    (NODE, ['{"v":1}', '{"v":1,"next":{"v":2,"next":{"v":3}}}'], ['{"v":1,"next":{}}', '{"next":{"v":1}}']),
    ({"$defs": {"a/b": {"const": 7}}, "$ref": "#/$defs/a~1b", "title": "seven"}, ["7"], ["8"]),
    (
        {"$defs": {"s": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/s", "maxLength": 1}}},
        ['{"x":"a"}'],
        ['{"x":"ab"}'],
    ),
    ({"type": "string", "format": "date"}, ['"2024-12-31"', '"2024-02-28"'], ['"2023-02-29"', '"2024-13-01"', '"2024-04-31"']),
    ({"type": "string", "format": "ipv4", "maxLength": 15}, ['"255.0.10.1"'], ['"256.0.0.1"', '"01.1.1.1"']),
    ('\ufeff {"type": "null", "default": 1.50}\n', ["null"], ["1"]),
]


@pytest.mark.parametrize("number", range(len(LANGUAGES)))
def test_what_a_schema_allows(number):
    schema, yes, no = LANGUAGES[number]
    allowed = judge(schema)
    assert [text for text in yes if not allowed(text)] == []
    assert [text for text in no if allowed(text)] == []
    if not isinstance(schema, str) and not isinstance(schema, bool) and not isinstance(schema.get("items"), list):
        assert all(validator(schema).is_valid(json.loads(text)) for text in yes)


REFUSED = [
    ({"minimun": 3}, "'minimun' cannot be enforced"),
    ({"type": "object", "properties": {"a": {"not": {}}}}, "'not' cannot be enforced"),
    ({"if": {}, "then": {}}, "'if'"),
    ({"patternProperties": {}}, "'patternProperties'"),
    ({"dependentRequired": {}}, "'dependentRequired'"),
    ({"contains": {}}, "'contains'"),
    ({"propertyNames": {}}, "'propertyNames'"),
    ({"unevaluatedProperties": False}, "'unevaluatedProperties'"),
    ({"type": "array", "uniqueItems": True}, "'uniqueItems' cannot be enforced"),
    ({"type": "object", "minProperties": 1}, "'minProperties' cannot be enforced"),
    ({"format": "idn-email"}, "format 'idn-email'"),
    ({"pattern": "^(a|bc){1,5000}$", "maxLength": 4000}, "'maxLength' cannot be enforced beside pattern"),
    ({"properties": {"a": {"$id": "http://example.com"}}}, "an .id inside"),
    ({"pattern": "a", "format": "date"}, "two patterns"),
    ({"pattern": "(?=a)"}, "look-around"),
    ({"multipleOf": 0.1}, "multipleOf has no meaning"),
    ({"multipleOf": None}, "multipleOf has no meaning"),
    ({"multipleOf": True}, "multipleOf has no meaning"),
    ({"type": "integer", "multipleOf": 5001}, "multipleOf cannot be enforced"),
    ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, "nothing tells alternatives 1 and 2 apart"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "nothing tells alternatives"),
    ({"oneOf": [{"type": "integer"}, {"enum": ["a", 2.0]}]}, "nothing tells alternatives"),
    ({"oneOf": [{"maximum": 1}, {"minimum": 1}]}, "nothing tells alternatives"),
    ({"oneOf": [{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"const": 2}}}]}, "nothing tells alternatives"),
    (
        {
            "oneOf": [
                {"properties": {"a": True}, "required": ["a"]},
                {"properties": {"b": True}, "required": ["b"], "additionalProperties": True},
            ]
        },
        "nothing tells alternatives",
    ),
    (
        {"oneOf": [{"minimum": 3, "anyOf": [{"type": "string"}]}, {"type": "string"}]},
        "nothing tells alternatives",
    ),
    ({"const": "\ud800"}, "lone surrogate"),
    ({"properties": {"\udc00": True}}, "lone surrogate"),
    ({"minimum": 10**5000}, "too large"),
    ({"const": 10**5000}, "too large"),
    ({"minimum": 1e-300, "maximum": 1e-299, "multipleOf": 10**-401}, "no meaning|too small"),
    ({1: 2}, "cannot be enforced"),
    ({"type": "strin"}, "type has no meaning"),
    ({"type": []}, "type has no meaning"),
    ({"enum": []}, "enum has no meaning"),
    ({"anyOf": []}, "anyOf has no meaning"),
    ({"required": "a"}, "required has no meaning"),
    ({"required": [1]}, "required has no meaning"),
    ({"properties": []}, "properties has no meaning"),
    ({"properties": {"a": 3}}, "this is no schema"),
    ({"minimum": "3"}, "minimum has no meaning"),
    ({"minimum": True}, "minimum has no meaning"),
    ({"minimum": 1e999}, "no number"),
    ({"maxLength": -1}, "maxLength has no meaning"),
    ({"maxItems": 1.5}, "maxItems has no meaning"),
    ({"$ref": "#"}, "leads back to itself"),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "leads back to itself"),
    ({"allOf": [{"$ref": "#"}]}, "leads back to itself"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "leads back to itself"),
    ({"$ref": "#/nowhere"}, "leads nowhere"),
    ({"$ref": "http://example.com/schema"}, "outside the document"),
    ({"$ref": "#name"}, "leads nowhere|anchor"),
    ("{", "not JSON"),
    ("", "not JSON"),
    ("{} {}", "one value"),
    ('{"type": "null", "type": "null"}', "member twice"),
    ('{"minimum": NaN}', "not JSON"),
    ("[" * 100_000, "nested too deeply|not JSON"),
    ("3", "no schema"),
    ([], "no schema"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_be_enforced_is_refused_by_name(number):
    schema, why = REFUSED[number]
    with pytest.raises(InvalidInputError, match=why):
        grammar_of(json_schema=schema)


def test_places_are_named():
    schema = {"properties": {"a": {"items": {"maxItem": 2}}}}
    with pytest.raises(InvalidInputError) as found:
        grammar_of(json_schema=schema)
    assert found.value.where == "#/properties/a/items" and "maxItems" in found.value.expected


EMPTY = [
    False,
    {"type": "integer", "minimum": 3, "maximum": 2},
    {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "array", "minItems": 2, "maxItems": 1},
    {"type": "object", "required": ["a", "b"], "maxProperties": 1},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"allOf": [{"type": "string"}, {"type": "integer"}]},
    {"enum": [1, 2], "type": "string"},
    {"const": 1, "enum": [2]},
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    {"type": "integer", "multipleOf": 10, "minimum": 1, "maximum": 9},
]


@pytest.mark.parametrize("number", range(len(EMPTY)))
def test_a_schema_without_values_is_refused(number):
    with pytest.raises(InvalidInputError, match="no text satisfies"):
        constrained.bound(grammar_of(json_schema=EMPTY[number]), TOKENIZER)


def nested(levels, inner):
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


def test_hostile_schemas_have_limits():
    """Counted in nodes of the grammar: references are not copied, numbers of items are not either."""
    doubled = {f"d{n}": {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}, "y": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(40)}
    doubled["d40"] = {"type": "null"}
    assert len(grammar_of(json_schema={"$defs": doubled, "$ref": "#/$defs/d0"}).kind) < 2000
    many = {"type": "array", "items": {"type": "string", "maxLength": 10**9}, "maxItems": 10**9}
    assert len(grammar_of(json_schema=many).kind) < 100
    assert judge(nested(40, {"type": "null"}))('{"a":' * 40 + "null" + "}" * 40)
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        grammar_of(json_schema=nested(200, {"type": "null"}))
    with pytest.raises(InvalidInputError, match="too many alternatives"):
        alternatives = {"anyOf": [{"minLength": n} for n in range(12)]}
        grammar_of(json_schema={"allOf": [dict(alternatives) for _ in range(6)]})
    with pytest.raises(InvalidInputError, match="too large"):
        grammar_of(json_schema={"enum": [f"{n}{'x' * 50}{n}" for n in range(9000)]})
    with pytest.raises(InvalidInputError, match="at least 1"):
        constrained.begin(constrained.bound(grammar_of(json_schema={"type": "array", "minItems": 10**9}), TOKENIZER), 100)


def test_references_have_a_depth():
    deep = judge(NODE)
    assert deep('{"v":1,"next":' * 60 + '{"v":1}' + "}" * 60) and not deep('{"v":1,"next":' * 70 + '{"v":1}' + "}" * 70)


def test_what_is_entered_can_be_left_again():
    """A member that comes last needs references inside references: where they no longer fit, nothing is entered before it."""
    chain = {f"u{n}": {"type": "array", "items": {"$ref": f"#/$defs/u{n + 1}"}, "minItems": 1} for n in range(9)}
    schema = {
        "$defs": chain | {"u9": {"type": "null"}},
        "properties": {"a": {"$ref": "#"}, "y": {"$ref": "#/$defs/u0"}, "z": {"$ref": "#/$defs/u0"}},
        "required": ["y", "z"],
        "additionalProperties": False,
    }
    constraint = constrained.bound(grammar_of(json_schema=schema), TOKENIZER)
    states = constraint.states
    state, depth = states.start, 0
    while state >= 0:
        at = state
        while states.costs[at]:
            at = states.nearest(at)[1]
            assert at >= 0
        depth += 1
        for byte in b'{"a":':
            state = states.step(state, byte) if state >= 0 else state
    assert 50 < depth < 64


def test_nesting_stays_within_what_readers_take():
    """Logits that want brackets: the text closes all of them within the budget, and json reads it."""
    constraint = constrained.bound(grammar_of(json_schema=True), TOKENIZER)
    generation = constrained.complete(constraint, TOKENIZER, constrained.rules(TOKENIZER, 0)["nesting"], 2000)
    assert generation.text.count("[") + generation.text.count("{") > 20
    json.loads(generation.text)
