"""The tables of families and formats say everything that records say, and the pages made of them are current."""

import sys
from pathlib import Path

import pytest

from reflex import arch, quant, tables
from reflex.arch.spec import FAMILY_DEFAULTS
from reflex.cli.jsonline import encode
from reflex.quant.types import TYPES

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import record, support_tables

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


def test_figures_of_results_are_shown(monkeypatch):
    """What bench/formats.py, bench/formats_device.py and bench/families_device.py write, as far as the tables read it."""
    head = {"commit": "abc", "date": "2026-11-30 10:00 UTC", "machine": dict.fromkeys(("cpu", "cores", "kernel", "python"), "?")}
    product = [{"format": "Q4_K", "bits": 4.5, "tokens": 1, "us": 10}, {"format": "Q8_0", "bits": 9, "tokens": 1, "us": 16}]
    errors = {"reference": {"whole 1": 0.004, "step 7": 0.002}, "llama.cpp": {"whole 1": 0.001, "step 7": 0.03}}
    errors["llama.cpp, cache F16"] = {"whole 1": 0.005, "step 7": 0.003}
    far = {"F16": {"errors": errors, "turned over": {}, "llama.cpp's caches apart": 0.02}, "F32": {"failed": "no kernel"}}
    tie = {"errors": {"reference": {"whole 1": 0.5, "step 7": 0.006}}}
    tie |= {"turned over": {"whole 1": {"distance": 0.002, "gaps": [0.003]}}}
    known = {
        "formats": {"products": product},
        "formats-cpu": {"formats": {"Q8_0": {"1": {"share": {"median": 1.5}}}}},
        "families": {"goal": 0.01, "models": {"llama": far, "gpt2": {"F16": {"refused": "no kernel"}}, "kolibri1": {"F16": tie}}},
    }
    known["families*"] = known.pop("families")
    bits = {"llama": {"F16": {"adapters": [{"distance": 0.004}, {"distance": 0.0051}]}, "Q8_0": {"failed": "no kernel"}}}
    known["bits"] = {"goal": 0.02, "checked": 25, "wrong": 1, "left_out": 0, "models": bits}
    monkeypatch.setattr(record, "read", lambda pattern: [head | known[pattern]] if pattern in known else [])
    rows = {line.split("`")[1]: line for line in support_tables.formats().splitlines()[2:]}
    assert rows["Q4_K"].endswith("|  |  | 1.00 |  |") and rows["Q8_0"].endswith("| 1.50 |  | 1.25 |  |")
    rows = {line.split("`")[1]: line for line in support_tables.models().splitlines()[2:]}
    assert rows["llama"].endswith("| 0.0030 |  | 0.0040 | `llama` failed |")
    assert rows["gpt2"].endswith("|  |  |  | `gpt2` refused |")
    assert rows["kolibri1"].endswith("|  |  | 0.0060 | `kolibri1` but for choices of experts with gaps up to 0.0030 |")
    unexplained = {"F16": tie | {"turned over": {"whole 1": {"distance": 0.4, "gaps": [0.003]}}}}
    known["families*"]["models"]["kolibri1"] = unexplained
    assert "| 0.5000 |  |" in next(row for row in support_tables.models().splitlines() if "`kolibri1`" in row)
    assert "0.01 is good" in support_tables.checks() and "0.0200 (median)" in support_tables.checks()
    checks = " ".join(support_tables.checks().split())
    assert "at most 0.0051" in checks and "25 comparisons of 1 models, 1 not right, 0 left out" in checks
    assert "abc" in support_tables.speeds()
