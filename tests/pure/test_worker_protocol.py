"""What a line may say: cutting bytes into lines, the tables of fields, and nothing but typed refusals whatever comes."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex.errors import InvalidInputError, ReflexError
from reflex.worker import page, protocol
from reflex.worker.channel import TOO_LONG, Lines

COMMANDS = protocol.names()
FIELDS = [(name, *row) for name in COMMANDS for row in protocol.command(name).FIELDS]
GOOD = {  # kind -> a value of it
    "text": "a", "texts": ["a", "b"], "stops": ["."], "switch": True, "whole": 3, "number": 0.5, "tokens": [1, 2], "prompt": "a",
    "messages": [{"role": "user", "content": "a"}], "object": {"a": 1}, "schema": {"type": "null"}, "id": "x", "rule": "mean",
    "path": "/a",
}  # fmt: skip
VALUES = [None, True, 0, -1, 1.5, 1 << 64, -(1 << 63) - 1, "", "a", "\ud800", [], ["a"], [1], [1.5], [None], [[]], {}, {"a": 1}]
VALUES += [[True]]
PIECES = [b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\u", b"1e999", b"-", b"null", b"\xff", b"\0", b"7", b"a"]


def least(name):
    """The shortest request of a command."""
    rows = protocol.command(name).FIELDS
    return {"command": name, **{row[0]: GOOD[row[1]] for row in rows if row[2] is protocol.REQUIRED}}


# ---- lines ----


@given(st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")), max_size=8), st.randoms())
@settings(max_examples=100)
def test_lines_do_not_depend_on_where_reads_end(texts, rng):
    data, lines, found = b"".join(text + b"\n" for text in texts), Lines(20), []
    while data:
        size = rng.randrange(1, 12)
        found += lines.feed(data[:size])
        data = data[size:]
    assert found == [text if len(text) <= 20 else TOO_LONG for text in texts]
    assert lines.rest() == []


def test_a_long_line_is_told_once_and_not_kept():
    lines = Lines(1000)
    found = lines.feed(b"x" * 1001)
    assert found == [TOO_LONG]
    for _ in range(1000):
        assert lines.feed(b"y" * 1000) == [] and len(lines) == 0
    assert lines.feed(b"z\nnext\nrest") == [b"next"]
    assert lines.rest() == [b"rest"] and lines.rest() == []


def test_a_line_of_the_very_limit_is_one():
    assert Lines(5).feed(b"12345\n123456\n1\n") == [b"12345", TOO_LONG, b"1"]


# ---- requests ----


def test_kinds_and_rows_are_well_formed():
    assert {row[2] for row in FIELDS} <= set(protocol.KINDS) and set(GOOD) == set(protocol.KINDS)
    for name, field, kind, default, meaning in FIELDS:
        assert meaning.endswith(".") and "|" not in meaning, (name, field)
        assert default is protocol.REQUIRED or not default or protocol.KINDS[kind][0](default), (name, field)
        assert field not in ("command", "id")
    assert sorted(COMMANDS) == COMMANDS and len(COMMANDS) >= 6


@pytest.mark.parametrize("name", COMMANDS)
def test_the_shortest_and_the_fullest_request(name):
    said = least(name)
    found, fields = protocol.checked(said)
    assert found == name and set(fields) == {row[0] for row in protocol.command(name).FIELDS}
    full = {"id": 7, "command": name, **{row[0]: GOOD[row[1]] for row in protocol.command(name).FIELDS}}
    assert protocol.checked(full)[1] == {key: value for key, value in full.items() if key not in ("id", "command")}
    nulls = {key: None for key in full if key not in said}
    assert protocol.checked({**nulls, **said})[1] == fields, "null counts as not given"


@pytest.mark.parametrize(("name", "field", "kind"), [row[:3] for row in FIELDS])
def test_a_value_of_another_kind_is_refused_by_name(name, field, kind):
    refused = 0
    for value in VALUES:
        said = {**least(name), field: value}
        if value is None or protocol.KINDS[kind][0](value):
            continue
        with pytest.raises(InvalidInputError) as error:
            protocol.checked(said)
        assert field in error.value.message and error.value.where == field and error.value.expected == protocol.KINDS[kind][1]
        refused += 1
    assert refused >= 8


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_field_is_named(name):
    for row in protocol.command(name).FIELDS:
        if row[2] is protocol.REQUIRED:
            said = least(name)
            del said[row[0]]
            with pytest.raises(InvalidInputError, match=f"{name} needs {row[0]}"):
                protocol.checked(said)


@pytest.mark.parametrize(
    ("said", "near"),
    [
        ({"command": "sistem1"}, "(near: system1"),
        ({"command": "GENERATE"}, "found 'GENERATE'"),
        ({"command": ["generate"]}, "a list of 1"),
        ({"command": "__init__"}, "no such command"),
        ({"command": "../cli/check"}, "no such command"),
        ({}, "cancel or detokenize"),
        ({"command": "generate", "max_token": 3}, "near: max_tokens"),
        ({"command": "system1", "candidates": ["a"], "canditates": ["a"]}, "near: candidates"),
        ({"command": "health", "x" * 10**6: 1}, "health has no such field"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(said, near):
    with pytest.raises(InvalidInputError) as error:
        protocol.checked(said)
    assert near in str(error.value)
    assert len(json.dumps(protocol.problem(error.value))) < 3000


@pytest.mark.parametrize("number", ["", "x" * 257, 1.5, [], {}, True, 1 << 64])
def test_an_id_is_a_short_text_or_a_whole_number(number):
    if number == "":
        assert protocol.identity({"id": number}) == ""
        return
    with pytest.raises(InvalidInputError):
        protocol.identity({"id": number})


@pytest.mark.parametrize(
    "line",
    [b"", b"nul", b"[]", b'"a"', b"1", b"{", b'{"a":}', b'{"a":1,"a":2}', b"\xff", b'{"a":"\xff"}', b"{} {}", b"NaN", b'{"a":NaN}',
     b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b'{"a": "\n"}', b"\x00", b"{\"a\": -Infinity}"],
)  # fmt: skip
def test_lines_that_are_no_object_are_refused(line):
    with pytest.raises(InvalidInputError) as error:
        protocol.read(line)
    assert "the request" in error.value.message and "\n" not in str(error.value)


def test_a_first_broken_line_is_told_where_nothing_of_json_was_imported():
    """The C scanner takes the class of its errors from a module that may not be there yet."""
    import subprocess
    import sys

    code = "import sys; from reflex.worker import protocol\nassert 'json' not in sys.modules\n"
    code += "try: protocol.read(b'{\"a\\x01\": 1}')\nexcept Exception as error: print(error)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout.startswith("the request is not JSON; found Invalid control character"), done.stderr + done.stdout


def test_mutated_requests_are_read_or_refused():
    """Bytes of real requests changed, cut, doubled: a request with the right kinds, or InvalidInputError, never anything else."""
    rng = random.Random(5)
    rows = {name: protocol.command(name).FIELDS for name in COMMANDS}
    seeds = [json.dumps({"id": 7, "command": name, **{row[0]: GOOD[row[1]] for row in rows[name]}}) for name in COMMANDS]
    outcomes = {True: 0, False: 0}
    for _ in range(20_000):
        data = bytearray(rng.choice(seeds).encode())
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.choice(PIECES)
        try:
            said = protocol.read(bytes(data))
            protocol.identity(said)
            name, fields = protocol.checked(said)
            kinds = {row[0]: row[1] for row in rows[name]}
            assert all(value is None or not value or protocol.KINDS[kinds[key]][0](value) for key, value in fields.items())
            outcomes[True] += 1
        except InvalidInputError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 200, outcomes


# ---- answers ----


def test_answers_are_one_line_and_errors_are_short():
    error = InvalidInputError("m\n" * 10**6, "e" * 10**6, 5, "w\x00", None)
    data = protocol.answer("error", "i\nd", protocol.problem(error))
    said = json.loads(data)
    assert data.count(b"\n") == 1 and data.endswith(b"\n") and len(data) < 4000
    assert list(said) == ["schema_version", "type", "id", *ReflexError("").as_dict()]
    assert said["id"] == "i\nd" and said["found"] == "5" and said["remedy"] is None
    assert list(json.loads(protocol.answer("result", None, {"a": 1}))) == ["schema_version", "type", "a"]
    assert json.loads(protocol.answer("result", 0, {}))["id"] == 0


def test_the_page_is_current():
    committed = Path(__file__).parents[2] / "docs" / "worker.md"
    assert committed.read_text() == page.text(), "run: python -m reflex.worker.page > docs/worker.md"
