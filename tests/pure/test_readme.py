"""README says what is so: its numbers are those of bench/results, its files, make targets and Python names exist."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import decision_picture, picture, readme, record  # noqa: E402

TEXT = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.stem not in ("LOG", "help"))]
RESULTS = sorted((ROOT / "bench" / "results").glob("*.json"))


def test_pages_are_as_they_are_made():
    done = subprocess.run([sys.executable, ROOT / "bench" / "readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_stale_number_is_noticed():
    stale = TEXT.replace("<!-- numbers: families -->\n", "<!-- numbers: families -->\n- `abacus`: beads\n")
    assert stale != TEXT and readme.fill(stale) == readme.fill(TEXT) != stale


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_every_block_is_in_its_page(page):
    assert sorted(name for _, name, _ in readme.BLOCK.findall(page.read_text())) == sorted(readme.PAGES[page])


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.stem)
def test_a_changed_figure_is_noticed(page, monkeypatch, tmp_path):
    """`--check` names the page in which one digit of a block was changed by hand."""
    found = next(found for found in readme.BLOCK.finditer(page.read_text()) if re.search(r"\d", found[0].splitlines()[-2]))
    wrong = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), found[0].splitlines()[-2])
    copy = tmp_path / page.name
    copy.write_text(page.read_text().replace(found[0].splitlines()[-2], wrong))
    monkeypatch.setattr(readme, "PAGES", {copy: readme.PAGES[page]})
    monkeypatch.setattr(readme, "WHOLE", {})
    monkeypatch.setattr(sys, "argv", ["readme.py", "--check"])
    with pytest.raises(SystemExit, match=page.name):
        readme.main()


@pytest.mark.skipif(not record.read("cold-*"), reason="no cold-start results in this tree")
def test_picture_is_that_of_the_results():
    assert picture.FILE.read_text() == picture.draw(record.read("cold-*")[0])


@pytest.mark.skipif(not record.read("decisions-*"), reason="no results of decisions in this tree")
@pytest.mark.parametrize("name", decision_picture.PICTURES)
def test_pictures_of_decisions_are_those_of_the_results(name):
    drawn = decision_picture.PICTURES[name](record.read("decisions-*"))
    assert (ROOT / "docs" / f"{name}.svg").read_text() == drawn, "run: python bench/decision_picture.py"
    assert f"({name}.svg)" in (ROOT / "docs" / "decisions.md").read_text()


def test_what_the_page_says_of_the_rules_is_what_the_results_say():
    """The sentences of docs/decisions.md between the tables; whoever measures anew sees which of them no longer hold."""
    results = record.read("decisions-*")
    for result in results:
        rules = {task: part["rules"] for task, part in result["tasks"].items()}
        assert rules["tails"]["sum"]["accuracy"][0] == 1 and rules["tails"]["mean"]["accuracy"][0] < 0.7
        assert rules["topic"]["pmi"]["accuracy"][0] > rules["topic"]["sum"]["accuracy"][0]
        assert rules["capital"]["mean"]["accuracy"][0] > rules["capital"]["sum"]["accuracy"][0]
        assert all(rules[task]["sum"]["accuracy"] == rules[task]["mean"]["accuracy"] for task in ("facts", "sentiment"))
        assert all(row["lead"][1] <= 0 for row in result["all"]["rules"].values()), "none beats the default overall"
        assert result["all"]["rules"]["pmi"]["fitted"]["temperature"] > 2, "too sharp"
        letter, text = result["orders"]["choice by letter"]["sum"], result["orders"]["choice by text"]["sum"]
        assert letter["changed"][0] > 0.9 > text["changed"][0] > 0.5
    best = max(results, key=lambda result: result["tasks"]["choice by letter"]["rules"]["sum"]["accuracy"][0])
    averaged = best["orders"]["choice by letter"]["sum"]["averaged"][0]
    assert averaged > 2 * best["tasks"]["choice by letter"]["rules"]["sum"]["accuracy"][0]


def test_what_the_page_says_of_encoders_is_what_the_results_say():
    ratios = [way["ratio"]["median"] for kind in record.read("encoders")[0]["formats"].values() for way in kind.values() if way]
    assert f"byte for byte what ggml makes and {min(ratios):.1f} to {max(ratios):.0f} times as fast" in TEXT


def test_numbers_outside_of_blocks_are_few():
    """Whoever writes a measured figure by hand has it checked above, or makes a block of it."""
    prose = "\n".join(line for line in readme.BLOCK.sub("", TEXT).splitlines() if not line.startswith("    "))
    units = re.findall(r"\d[\d.,]*(?: to \d[\d.,]*)? (?:ms|us|s|milliseconds|GB|MB|TB|tok|times|%|GB/s|TB/s)(?![\w-])", prose)
    assert units == ["1.2 to 17 times"]


FOLDERS = ("bench", "deploy", "examples", "reflex", "tests")
MODULES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")} | {"precompile.py", "convert_lora_to_gguf.py"}


def headings(page):
    """The anchors that GitHub makes of a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere_and_files_named_exist(page):
    text, lost = page.read_text(), []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        lost += [] if ":" in name or (target.exists() and (not anchor or anchor in headings(target))) else [link]
    for name in re.findall(r"`((?:bench|deploy|docs|examples|reflex|tests)/[\w./-]+|[\w-]+\.py)`", text):
        lost += [] if (ROOT / name).exists() or name in MODULES else [name]
    assert lost == []


def test_make_targets_named_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([\w-]+)", TEXT))
    assert {"demo", "test", "bench"} <= named <= targets


def test_commands_named_exist():
    from reflex.cli import front

    for words in re.findall(r"^    reflex (\w+) .*$", TEXT, re.MULTILINE):
        assert front.command(words) is not None, words


def test_python_of_the_readme_is_valid():
    import reflex

    code = "\n".join(line[4:] for line in TEXT.split("## From Python")[1].split("\n## ")[0].splitlines() if line.startswith("    "))
    methods = {n.attr for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "model"}
    assert {"system1", "generate", "logits"} <= methods
    assert all(hasattr(reflex.Model, name) for name in methods)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_are_complete_and_name_no_folder(path):
    result = json.loads(path.read_text())
    assert {"what", "command", "commit", "date", "machine"} <= set(result)
    assert not re.search(r"(?<![\w.])/(tmp|root|home|work|usr)/", path.read_text())


@pytest.mark.parametrize(
    ("word", "bare"),
    [
        ("/a/b/model.gguf", "model.gguf"),
        ("x=/a/b-c/run -m MODEL", "x=run -m MODEL"),
        ("~/models/m.gguf", "m.gguf"),
        ("either/or and 1/2", "either/or and 1/2"),
        ("https://example.org/a", "https://example.org/a"),
    ],
)
def test_folder_names_are_taken_off(word, bare):
    assert record.bare(word) == bare


def test_a_picture_has_every_engine_and_phase():
    def engine(name, ms, **more):
        return {"name": name, "first_ms": record.summary([ms]), **more}

    spent = {"launch": record.summary([8.0]), "prefill": record.summary([30.0])}
    engines = [engine("reflex", 40.0, phases_ms=spent), engine("a <peer>", 200.0)]
    svg = picture.draw({"model": {"title": "T"}, "prompt": "p", "cpus": [0], "engines": engines})
    assert all(words in svg for words in ("reflex", "a &lt;peer&gt;", "200 ms", "launch", "prefill", "30.0 ms", "2.0 ms"))


FOREIGN = {"--gpus"}  # of docker


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_options_of_the_pages_exist(page):
    from reflex.cli import front

    text = page.read_text()
    for words in re.findall(r"^    reflex (.*)$", text, re.MULTILINE):
        name, *rest = shlex.split(words, comments=True)
        module = front.command(name)
        assert module is not None, words
        options = {parameter[0] for parameter in module.PARAMETERS} | {"--json", "-o"}
        assert {word for word in rest if word.startswith("-") and word != "-"} <= options, words
    sources = [path for folder in ("reflex", "bench", "tests/fuzz") for path in (ROOT / folder).rglob("*.py")]
    known = {word for source in sources for word in re.findall(r"""["'](--[a-z][a-z-]*)["']""", source.read_text())}
    said = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)(?![\w-])", "\n".join(re.findall(r"`[^`\n]+`|^    .*$", text, re.MULTILINE))))
    assert said - known <= FOREIGN
