"""The examples of docs/lab.md run as they stand, one after the other, and say what the page says; so does README's first plot."""

import html
import re
import sys
from pathlib import Path

import pytest
from real import locate

import reflex

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench import lens_picture  # noqa: E402


def test_examples_of_the_page_run(capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pandas")
    locate("smollm2")
    pyplot.switch_backend("Agg")
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "lab.md").read_text(), re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, "docs/lab.md", "exec"), names)
        shown = capsys.readouterr().out
        assert all(said in shown for said in re.findall(r"# (\(.*?\)):", block)), shown
        if "logprobs" in block:
            mine, other = map(float, shown.splitlines()[0].split())
            assert mine == pytest.approx(other, abs=1e-4)
        if "without_head_4" in block:
            plain, without = map(float, shown.split())
            assert plain > 0.99 and without < 0.9, "the head that reads the country"
        if "spain" in block:
            assert [line.split()[-1] for line in shown.splitlines()] == ["Madrid", "Madrid", "Paris"]
    assert names["model"].close() is None


def test_first_plot_of_the_readme():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    locate("smollm2")
    pyplot.switch_backend("Agg")
    lines = (ROOT / "README.md").read_text().partition("Three lines to the first plot")[2].split("\n\n")[1].splitlines()
    assert len(lines) == 3 and all(line.startswith("    ") for line in lines)
    names = {}
    exec(compile("\n".join(line[4:] for line in lines), "README.md", "exec"), names)
    assert len(pyplot.gcf().axes[0].texts) == 30 * 5, "a cell per layer and token"
    pyplot.close("all")
    names["model"].close()


def test_the_committed_picture_is_of_this_model():
    """Each cell's text, in order; by the reference backend, whose rounding depends least on the processor."""
    pictures = pytest.importorskip("reflex.lab.pictures")
    with reflex.load(str(locate("smollm2")), backend="reference") as model:
        found = model.lens(lens_picture.TEXT, layers=lens_picture.LAYERS)
    want = pictures.spelled([best[0] for row in found.top_texts for best in row])
    texts = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", lens_picture.FILE.read_text())]
    at = texts.index("after layer") + 1
    assert [text.strip() for text in texts[at : at + len(want)]] == [text.strip() for text in want], "run bench/lens_picture.py"
