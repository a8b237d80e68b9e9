"""The committed help page says what the commands say."""

from pathlib import Path

from reflex.cli import page


def test_help_page_is_current():
    committed = Path(__file__).parents[2] / "docs" / "help.md"
    assert committed.read_text() == page.text(), "run: python -m reflex.cli.page > docs/help.md"
