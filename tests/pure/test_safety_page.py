"""docs/safety.md: every guarantee names tests that exist. And one guarantee that is read off the source."""

import ast
import re

from test_house_rules import ROOT, product_files

PAGE = (ROOT / "docs" / "safety.md").read_text()
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)


def test_every_named_test_exists():
    there = {}
    for path in {path for path, _ in NAMED}:
        tree = ast.parse((ROOT / "tests" / path).read_text())
        there[path] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = [f"{path}::{name}" for path, name in NAMED if name not in there[path]]
    assert not missing and len(NAMED) > 100


def test_every_guarantee_has_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| guarantee"))]
    assert len(rows) > 50
    assert [row for row in rows if not re.search(r"`\S+\.py::test_\w+`", row.split(" | ")[1])] == []


def test_one_reader_walks_headers():
    """Base models, shards, overlays, importance: all of them by the one walk, whose checks then hold for all."""
    holders = {str(path.relative_to(ROOT / "reflex")) for path in product_files() if re.search(r"\bgguf_scan\b", path.read_text())}
    assert holders == {"gguf/header.py", "kernels/host/gguf_scan.py"}
