"""The cold path's JSON encoder against the standard library's decoder."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reflex.cli.jsonline import encode

TEXT = st.text(st.characters(exclude_categories=[]))  # every code point, lone surrogates included
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300)
@given(PLAIN)
def test_decodes_to_the_same_value(value):
    line = encode(value)
    assert "\n" not in line and "\r" not in line
    assert json.loads(line.encode("utf-8")) == value


@pytest.mark.parametrize("code", [*range(0x20), 0x22, 0x5C, 0x7F, 0x2028, 0xD800, 0xDFFF, 0x1F600])
def test_single_characters(code):
    assert json.loads(encode(f"a{chr(code)}b")) == f"a{chr(code)}b"


def test_raw_bytes_survive():
    text = json.loads(encode(b"\xff\x00 ok \xe2\x82"))
    assert text.encode("utf-8", "surrogateescape") == b"\xff\x00 ok \xe2\x82"


def test_floats_json_cannot_say_become_null():
    assert json.loads(encode([math.nan, math.inf, -math.inf, -0.0])) == [None, None, None, -0.0]


def test_other_types_are_refused():
    with pytest.raises(TypeError):
        encode({1, 2})
