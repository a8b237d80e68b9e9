"""bench/card.py: every bench of a GPU has a part, and a part that fails, is too slow or has no time left is a line of the table."""

import os
import re
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import card, record, shapes

ROOT = record.ROOT
TRIALS = {"persistent_device", "lab_device"}  # an experiment; a part of device.py
BENCHES = {
    "writes": "import sys; sys.path.insert(0, '.'); from bench import record; record.RESULTS.mkdir(exist_ok=True);"
    " (record.RESULTS / (sys.argv[1] + '.json')).write_text('{}'); print('wrote', sys.argv[1])",
    "fails": "print('so much'); raise SystemExit(3)",
    "sleeps": "import time; print('begun', flush=True); time.sleep(60)",
    "shapes": "import sys; open(sys.argv[2], 'w').write(sys.argv[1]); print('made', sys.argv[1])",
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """run(parts, *words): (exit code, {name: line of the table}, card.txt, names of records) of a card with these parts."""
    tree = tmp_path / "tree"
    for name, text in BENCHES.items():
        path = tree / "bench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tree / "bench" / "record.py").write_text("from pathlib import Path; RESULTS = Path('results')")
    (tree / "results").mkdir()
    (tree / "results" / "old.json").write_text("{}")
    os.utime(tree / "results" / "old.json", (1, 1))
    monkeypatch.setattr(record, "ROOT", tree)
    monkeypatch.setattr(record, "RESULTS", tree / "results")

    def run(parts, *words):
        monkeypatch.setattr(card, "PARTS", parts)
        monkeypatch.setattr(sys, "argv", ["card.py", "--out", str(tmp_path / "out"), "--folder", str(tmp_path), *words])
        code = card.main()
        with tarfile.open(tmp_path / "out" / "records.tar.gz") as archive:
            records = archive.getnames()
        text = (tmp_path / "out" / "card.txt").read_text()
        lines = [line for line in text.partition("records:")[0].splitlines() if line]
        assert all(line in capsys.readouterr().out for line in lines[:1])
        return code, {line.split()[0]: line.partition(" s  ")[2] for line in lines}, text, records

    return run


def part(name, *commands, seconds=1, more=0, limit=60, files=()):
    return card.Part(name, seconds, more, limit, files, lambda options: [list(command) for command in commands])


def test_every_bench_of_a_gpu_has_a_part():
    options = card.Options(folder="/ram", model=["a.gguf"], reflex="reflex", llama="bin")
    named = {command[0] for part in card.PARTS for command in part.commands(options)}
    files = {path.stem for path in (ROOT / "bench").glob("*device.py")}
    assert files - TRIALS == named
    for part in card.PARTS:
        assert part.seconds + part.more <= part.limit
        for bench, *words in part.commands(options):
            text = (ROOT / "bench" / f"{bench}.py").read_text()
            options_of = set(re.findall(r'add_argument\("(--[a-z-]+)"', text))
            assert {word for word in words if word.startswith("--")} <= options_of
    assert set(card.SHAPES.values()) | {card.BIG, card.LITTLE, card.LARGEST} <= set(shapes.SHAPES)


def test_what_comes_of_parts(run):
    parts = (
        part("two", ["writes", "one"], ["writes", "other"]),
        part("bad", ["writes", "third"], ["fails"]),
        part("slow", ["sleeps"], limit=1),
        part("long", ["fails"], seconds=500, more=90),
        part("energy", ["fails"], seconds=10**6),
        part("files", ["writes", "fourth"], files=("qwen3-0.6b",)),
    )
    code, lines, text, records = run(parts, "--llama", "bin")
    assert code == 1
    assert [lines[name] for name in ("two", "bad", "slow", "files")] == ["ok", "exit code 3", "CUT SHORT", "ok"]
    assert re.fullmatch("left out: takes 590 s, 5[56][0-9] s are left", lines["long"]) and lines["energy"].startswith("left out")
    assert records == [f"{name}.json" for name in ("fourth", "one", "other", "third")]
    assert all(words in text for words in ("so much", "begun", "wrote one", "wrote other", "made qwen3-0.6b"))


def test_parts_by_name_and_without_llama_cpp(run):
    parts = (part("a", ["writes", "x"], seconds=500, more=90), part("b", ["fails"]), part("c", ["fails"]))
    code, lines, _, records = run(parts, "--only", "a,b", "--skip", "b")
    assert code == 0 and lines == {"a": "ok", "b": "not asked for", "c": "not asked for"} and records == ["x.json"]
    with pytest.raises(SystemExit):
        run(parts, "--only", "nothing")
