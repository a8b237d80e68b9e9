"""What bench/checks.py leaves out are the checks, and its recorded result says that they are cheap."""

import ast
import json
import sys

import pytest
from test_house_rules import ROOT, product_files

sys.path.insert(0, str(ROOT))
from bench.checks import KINDS, Without, is_check

CHECKS = [
    "if n < 0:\n    raise ModelFileError('x')",
    "if n < 0:\n    from .faults import foreign\n    raise foreign(1)",
    "if n < 0:\n    found = n\n    raise InvalidInputError('x', found=found)",
]
NOT_CHECKS = [
    "if n < 0:\n    raise ModelFileError('x')\nelse:\n    pass",
    "if n < 0:\n    n = 0",
    "if not self.turn.acquire(False):\n    raise StateError('x')",
    "if (n := n - 1) < 0:\n    raise ModelFileError('x')",
    "if n < 0:\n    raise BrokenPipeError",
    "if n < 0:\n    self.close()\n    raise ModelFileError('x')",
]


@pytest.mark.parametrize("text", CHECKS + NOT_CHECKS)
def test_what_a_check_is(text):
    assert is_check(ast.parse(text).body[0]) == (text in CHECKS)


def test_most_refusals_of_the_source_are_checks():
    """The others raise within a loop's `else`, an `except`, or after work: they stay in both variants."""
    raises = taken = 0
    for path in product_files():
        if "kernels" not in path.parts and path.name != "errors.py":
            tree = ast.parse(path.read_text())
            raises += sum(
                getattr(getattr(n.exc, "func", None), "id", "") in KINDS for n in ast.walk(tree) if isinstance(n, ast.Raise)
            )
            checks = Without()
            ast.unparse(checks.visit(tree))
            taken += checks.taken
    assert taken > 150 and taken > raises / 2


def test_checks_cost_less_than_three_percent_of_a_cold_start():
    found = json.loads((ROOT / "bench" / "results" / "checks.json").read_text())
    assert found["statements"] > 150 and min(found["parts"].values()) > 0
    assert sum(found["parts"].values()) < 0.03 * min(found["instructions"]["with"])
