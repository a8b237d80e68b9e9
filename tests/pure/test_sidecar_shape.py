"""Requests held against their schemas as the public validator does it; the command line; errors as answers; decisions."""

import types

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex import errors
from reflex.cli import front
from reflex.rules import RULES
from reflex.sidecar import answers, decisions, metrics, openapi, options, problems, requests, shape

SHAPE = shape.Shape(requests.SCHEMAS)
GOOD = {
    "ChatRequest": [
        {"messages": [{"role": "user", "content": "a"}]},
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
            "stop": ["a"],
            "stream_options": {"include_usage": None},
        },
        {
            "messages": [{"role": "user", "content": "a"}],
            "response_format": {"type": "json_schema", "json_schema": {"schema": True}},
        },
    ],
    "CompletionRequest": [{"prompt": "a"}, {"prompt": [1, 2.0], "logprobs": 0, "stop": "x", "top_p": 1}],
    "ClassifyRequest": [
        {"prompt": "a", "labels": ["a"]},
        {"messages": [{"role": "user", "content": "a"}], "labels": ["a"], "rule": "pmi"},
    ],
    "SystemOneRequest": [
        {"state": ["a"], "questions": {"q": {"type": "choice", "instructions": "a", "criteria": {"a": None, "b": {"c": 1}}}}},
        {"state": {}, "questions": {"q": {"type": "score", "instructions": {"a": 1}, "criteria": ["a", None]}}},
        {
            "state": "",
            "questions": {"q": {"type": "noul", "instructions": "a"}, "r": {"type": "noul", "instructions": "b", "criteria": None}},
        },
    ],
}
VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    1.5,
    21,
    1 << 63,
    -(1 << 63) - 1,
    "",
    "a",
    "user",
    "text",
    "auto",
    [],
    ["a"],
    [1],
    [""],
    {},
]
VALUES += [
    {"a": 1},
    {"type": "text"},
    {"type": "noul", "instructions": "a"},
    [{"type": "text", "text": "a"}],
    {"include_usage": True},
]


def allowed(value, name):
    """What the public validator says, without our own keyword."""
    schema = {**requests.SCHEMAS[name], "components": {"schemas": requests.SCHEMAS}}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def judged(value, name):
    try:
        SHAPE.judge(value, name)
    except (errors.InvalidInputError, errors.UnsupportedError) as error:
        assert error.message and error.expected is not None
        return False
    return True


def places(value, path=()):
    """Every place in a value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("name", GOOD)
def test_every_place_of_a_request_with_every_value_is_judged_as_the_public_validator_does(name):
    refused = 0
    for good in GOOD[name]:
        assert judged(good, name) and allowed(good, name)
        for path in places(good):
            for value in VALUES:
                other = changed(good, path, value)
                assert judged(other, name) == allowed(other, name), other
                refused += not allowed(other, name)
        for field in (*requests.SCHEMAS[name]["properties"], "other"):
            for value in VALUES:
                other = {**good, field: value}
                assert judged(other, name) == allowed(other, name), other
        for field in good:
            other = {key: value for key, value in good.items() if key != field}
            assert judged(other, name) == allowed(other, name), other
    assert refused > 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "role", "a"]), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(GOOD)), st.integers(0, 2), st.integers(0, 50), JSON)
@settings(max_examples=300)
def test_any_value_anywhere(name, which, place, value):
    good = GOOD[name][which % len(GOOD[name])]
    paths = list(places(good))
    other = changed(good, paths[place % len(paths)], value)
    assert judged(other, name) == allowed(other, name)


def test_only_keywords_that_are_known_are_used():
    known = {*shape.RULES, "anyOf", "properties", "required", "additionalProperties", "propertyNames", "items", "$ref"}
    known |= {"description", "x-refused"}

    def walk(schema):
        if isinstance(schema, bool):
            return
        assert set(schema) <= known, set(schema) - known
        inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
        for each in (*inner, *[schema[name] for name in ("items", "additionalProperties", "propertyNames") if name in schema]):
            walk(each)

    for schema in requests.SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
        walk(schema)
    for schema in answers.SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_what_is_refused_says_what_to_do():
    with pytest.raises(errors.UnsupportedError) as caught:
        SHAPE.judge({"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, "ChatRequest")
    assert caught.value.where == "tools" and "response_format" in caught.value.remedy
    with pytest.raises(errors.InvalidInputError, match=r"temperature"):
        SHAPE.judge({"prompt": "a", "temprature": 1}, "CompletionRequest")


def test_rules_are_those_of_the_engine():
    assert set(requests.RULES) == set(RULES)


# ---- errors ----


def test_every_category_has_a_status():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ReflexError)]
    for kind in kinds:
        found = problems.problem(kind("a", "b", "c", "d", "e"))
        jsonschema.validate(found.body, answers.SCHEMAS["Error"])
        assert found.body["error"]["category"] == kind.category and 400 <= found.status < 600
        assert (found.status == 503) == (b"retry-after" in dict(found.headers))
    assert set(problems.STATUS) == {kind.category for kind in kinds}


def test_what_no_one_expected_is_an_internal_error():
    found = problems.problem(KeyError("x" * 5000))
    assert found.status == 500 and found.body["error"]["category"] == "internal" and len(found.body["error"]["message"]) < 1000


def test_the_document_names_every_status_and_schema():
    said = openapi.document("1", True)
    text = str(said)
    for name in (*requests.SCHEMAS, *answers.SCHEMAS):
        assert f"{shape.REFERENCE}{name}'" in text, name
    used = {status for path in said["paths"].values() for method in path.values() for status in method["responses"]}
    assert used == {"200", "204", *map(str, openapi.PROBLEMS)}


# ---- the command line ----


def test_plain_lines():
    found = options.parse(["m.gguf", "--port", "0", "--queue=2", "--json", "--ctx", "64", "--stall", "1.5"])
    assert (found.model, found.port, found.queue, found.json, found.stall) == ("m.gguf", 0, 2, True, 1.5)
    more = options.parse(["m.gguf", "--lora", "a", "--lora=b"])
    assert more.forwarded == ["--lora", "a", "--lora", "b"]
    assert found.forwarded == ["--ctx", "64"] and found.host == "127.0.0.1"
    assert options.parse(["m.gguf", "--help"]) is options.parse(["-h"]) is None
    assert all(name in options.help_text() for name, *_ in options.OPTIONS)
    assert max(map(len, options.help_text().splitlines())) <= 132


WRONG = [
    [],
    ["a", "b"],
    ["a", "--prot", "1"],
    ["a", "--port"],
    ["a", "--port", "x"],
    ["a", "--port", "70000"],
    ["a", "--port", "-1"],
]
WRONG += [
    ["a", "--stall", "0"],
    ["a", "--stall", "nan"],
    ["a", "--grace", "inf"],
    ["a", "--host", ""],
    ["a", "--json=1"],
    ["a", "--max-body", "0"],
]
WRONG += [["a", "--max-body", "99999999"], ["a", "-x"], ["a", "--", "b"]]


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_lines_that_are_refused(argv):
    with pytest.raises(errors.InvalidInputError) as caught:
        options.parse(argv)
    assert caught.value.expected and len(str(caught.value).splitlines()) == 1


def test_what_goes_on_to_the_worker_are_its_own_options():
    assert set(options.WORKER) <= {row[0] for row in front.ENGINE}
    for name, kind, *_ in front.ENGINE:
        words = [name] if kind == "switch" else [name, "1"]
        assert options.parse(["m.gguf", *words, "--json"]).forwarded == words


# ---- decisions and counts ----


def test_confidence_is_that_of_the_published_examples():
    assert decisions.peaked([0.9998, 0.0001, 0.0001]) == pytest.approx(0.9997)
    assert decisions.gathered([0.0023, 0.116, 0.6753, 0.2064]) == pytest.approx(0.673, abs=5e-4)
    for count in range(1, 9):
        even, sure = [1 / count] * count, [1.0] + [0.0] * (count - 1)
        assert decisions.peaked(even) == pytest.approx(0 if count > 1 else 1) and decisions.peaked(sure) == 1
        assert count == 1 or (0 <= decisions.gathered(even) < 1e-9 and decisions.gathered(sure) == 1)


def test_buckets_hold_what_took_no_longer():
    engine = types.SimpleNamespace(state="ready", starts=1, busy=True, waiting=[], limit=3)
    counts = metrics.Metrics(engine)
    for seconds in (0.004, 0.005, 0.3, 1000):
        counts.answered("/a", 200, seconds)
    text = counts.text()
    for bound, count in (("0.005", 2), ("0.25", 2), ("0.5", 3), ("300.0", 3), ("+Inf", 4)):
        assert f'reflex_request_seconds_bucket{{path="/a",le="{bound}"}} {count}\n' in text
    assert 'reflex_requests_total{path="/a",status="200"} 4\n' in text and 'reflex_request_seconds_count{path="/a"} 4\n' in text
    assert "\nreflex_requests_running 1\n" in text and "\nreflex_queue_limit 3\n" in text
