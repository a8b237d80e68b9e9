"""The tables of families and formats say everything that records say, and the pages made of them are current."""

import pytest

from reflex import arch, quant, tables
from reflex.arch.spec import FAMILY_DEFAULTS
from reflex.cli.jsonline import encode
from reflex.quant.types import TYPES

FAMILIES = tables.families()


def test_every_family_and_format_is_there():
    assert [row["name"] for row in FAMILIES] == arch.families()
    assert [row["id"] for row in tables.formats()] == list(TYPES)
    assert all(row["models"] and row["covers"] for row in FAMILIES), "the first line of a family's file: models: what it covers"
    assert encode(FAMILIES) and encode(tables.formats())


def test_the_fields_that_columns_say_are_fields_of_records():
    assert set(FAMILY_DEFAULTS) >= tables.SAID and set(tables.DESCRIBE) == set(tables.COLUMNS)


@pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row["name"])
def test_every_fact_of_a_record_shows(row):
    facts = FAMILY_DEFAULTS | row["record"]
    said = tables.describe(facts)
    assert said == {column: row[column] for column in said}
    for field in row["record"]:
        assert tables.describe(facts | {field: FAMILY_DEFAULTS[field]}) != said, field


def test_kernels_are_those_that_the_files_declare():
    for row in tables.formats():
        module = quant.load(row["name"])
        assert (row["cpu"] != "decoded") == hasattr(module, "LANES")
        assert ("tensor cores" in row["cuda"], "dot" in row["cuda"]) == (hasattr(module, "FRAGMENT"), hasattr(module, "DOT"))


def test_text_is_as_wide_as_its_columns():
    text = tables.render([{"name": "a", "long_one": ["x", "y"]}, {"name": "abcd", "long_one": []}], ("name", "long_one"))
    assert text == "name  long one\na     x, y\nabcd\n"
