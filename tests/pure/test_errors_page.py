"""docs/errors.md and the lines themselves: complete, one line each, with something to do about every one."""

import re
import sys

import pytest
from test_house_rules import ROOT

sys.path.insert(0, str(ROOT))
from bench import error_tables
from reflex import errors

PAGE = (ROOT / "docs" / "errors.md").read_text()


def test_every_class_says_when_and_what_to_do():
    for error in error_tables.classes():
        when, _, remedy = error.__doc__.partition("\n\n")
        assert when.strip() and remedy.strip().endswith("."), error
        assert f"| `{error.category}` | `{error.__name__}` |" in PAGE


def test_every_message_has_a_remedy():
    rows = re.findall(r"^\| (.+) \| (.*) \|$", PAGE[PAGE.index("## Messages") :], re.M)
    assert len(rows) > 200
    assert [message for message, remedy in rows if not remedy.strip() or remedy.startswith("&lt;")] == []


def test_messages_that_functions_pass_on_are_there():
    for message in (
        "no CUDA driver",
        "the CUDA driver failed",
        "several devices match",
        "the file became shorter while it was read",
    ):
        assert f"| {message} |" in PAGE


SOURCE = """
WORDS = "as a constant"
def f(given=None):
    what = "one thing" if given else "another thing"
    raise {error}(what, remedy=given or WORDS)
"""


def test_texts_are_read_off_the_source():
    import ast

    tree = ast.parse(SOURCE.format(error="ModelFileError"))
    constants = error_tables.texts_of(tree.body, {})
    names = error_tables.texts_of(ast.walk(tree.body[1]), constants)
    found = list(error_tables.raised(tree.body[1], {"ModelFileError"}, constants | names))
    assert found == [("ModelFileError", "one thing", "as a constant"), ("ModelFileError", "another thing", "as a constant")]


@pytest.mark.parametrize("error", error_tables.classes(), ids=lambda error: error.category)
def test_any_words_are_one_printable_line(error):
    nasty = "a\nb\x1b[31m\t\u2028\ud800" + "x" * 5000
    problem = error(nasty, expected=nasty, found=b"\xff\n", where=nasty, remedy=nasty)
    line = problem.line()
    assert line.startswith(f"reflex: {error.category}: ") and line.isprintable() and len(line) < 20_000
    assert set(problem.as_dict()) == {"category", "message", "expected", "found", "where", "remedy"}
    assert problem.exit_code in (2, 3, 4, 5, 6, 7, 8) and isinstance(problem, errors.ReflexError)
