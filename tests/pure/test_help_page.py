"""The committed help page says what the commands say."""

from pathlib import Path

from reflex.cli import page


def test_help_page_is_current():
    committed = Path(__file__).parents[2] / "docs" / "help.md"
    assert committed.read_text() == page.text(), "run: python -m reflex.cli.page > docs/help.md"


def test_page_of_constraints_is_current():
    from reflex.constrain import page as constraints

    committed = Path(__file__).parents[2] / "docs" / "constrain.md"
    assert committed.read_text() == constraints.text(), "run: python -m reflex.constrain.page > docs/constrain.md"


def test_page_of_the_interface_is_current():
    from reflex.lab import page as interface

    committed = Path(__file__).parents[2] / "docs" / "api.md"
    assert committed.read_text() == interface.text(), "run: python -m reflex.lab.page > docs/api.md"
