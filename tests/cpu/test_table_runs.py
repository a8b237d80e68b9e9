"""Tables in one process: what comes out, what is refused in one line, and runs that were ended and go on."""

import csv
import json
import os
import resource
import signal
import subprocess
import sys

import process
import pytest
import tiny

import reflex
from reflex.errors import InputOutputError, InvalidInputError, ReflexError, StateError, UnsupportedError
from reflex.integrations import columns
from reflex.integrations.parts import Parts, mark_of
from reflex.integrations.ray import Meter, main, score

LABELS = [" fox", " dog", " over"]
OPTIONS = {"model": None, "prompt_column": "text", "labels": LABELS, "actors": 0, "backend": "cpu", "context": 128}
HEADER = ["id", "text", 'a "quoted", name']
TEXTS = [f"the quick brown fox number {number} jumps" for number in range(23)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf"))


@pytest.fixture
def table(tmp_path):
    def write(texts=TEXTS, name="in.csv", header=HEADER):
        with open(tmp_path / name, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows([number, text, f'line\n"{number}"'] for number, text in enumerate(texts))
        return str(tmp_path / name)

    return write


def rows_of(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


def test_columns_are_those_of_the_engine(model, table, tmp_path):
    target = str(tmp_path / "out.csv")
    found = score(table(), target, **OPTIONS | {"model": model, "rule": "mean", "temperature": 0.5})
    assert found | {"seconds": 0} == {
        "rows": 23, "resumed": 0, "scored": 23, "actors": 0, "restarts": 0, "seconds": 0, "bad": 0, "first_bad": None,
    }  # fmt: skip
    rows = rows_of(target)
    assert list(rows[0]) == [*HEADER, *(f"reflex_{name}" for name in columns.RESULTS)]
    with reflex.load(model, backend="cpu", context=128, threads=1) as inside:
        for number, (row, text) in enumerate(zip(rows, TEXTS, strict=True)):
            decision = inside.system1(text, LABELS, rule="mean", temperature=0.5)
            assert row["id"] == str(number) and row["text"] == text and row[HEADER[2]] == f'line\n"{number}"'
            assert row["reflex_label"] == decision.best_text and int(row["reflex_prompt_tokens"]) == decision.prompt_tokens
            assert float(row["reflex_probability"]) == decision.best.probability and float(row["reflex_margin"]) == decision.margin
            assert json.loads(row["reflex_scores"]) == [candidate.mean for candidate in decision.candidates]
            assert row["reflex_error"] == ""
    assert not os.path.exists(f"{target}.parts")


def test_parquet_keeps_its_columns(model, tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    texts = [*TEXTS, None, ""]
    source, target = str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")
    kinds = {
        "text": arrow.array(texts).dictionary_encode(),
        "list": arrow.array([[1, 2]] * 25),
        "n": arrow.array(range(25), arrow.int8()),
    }
    parquet.write_table(arrow.table(kinds), source, row_group_size=7)
    found = score(source, target, **OPTIONS | {"model": model})
    assert found["bad"] == 2 and found["first_bad"].startswith("row 24: invalid_input: the prompt is null")
    before, after = parquet.read_table(source), parquet.read_table(target)
    assert after.select(before.column_names).equals(before)
    assert after["reflex_scores"].to_pylist()[-2:] == [None, None] and len(after["reflex_scores"][0].as_py()) == 3
    assert [str(after.schema.field(f"reflex_{name}").type) for name in ("label", "probability", "prompt_tokens")] == [
        "string", "double", "int64",
    ]  # fmt: skip


def test_bad_rows_have_errors_and_the_rest_is_scored(model, table, tmp_path, capsys):
    texts = ["a fox", "", "word " * 400, "raw \udcff byte", "a dog"]
    source, target = table(texts), str(tmp_path / "out.csv")
    words = [source, target, "--model", model, "--prompt-column", "text", "--labels", *LABELS, "--actors", "0", "--ctx", "128"]
    assert main([*words, "--backend", "cpu"]) == 1
    rows = rows_of(target)
    kinds = [row["reflex_error"].partition(":")[0] for row in rows]
    assert kinds[2] == "context_overflow" and kinds[0] == kinds[3] == kinds[4] == ""
    assert rows[3]["text"] == texts[3] and rows[3]["reflex_label"]
    said = capsys.readouterr()
    bad = sum(map(bool, kinds))
    (line,) = said.err.splitlines()
    assert f"{bad} of 5 rows have errors" in line and said.out.startswith(f"5 rows, {bad} with errors")


BAD = [
    (lambda t, f: t.update(prompt_column="texd"), InvalidInputError, "no such column.*did you mean 'text'"),
    (lambda t, f: t.update(source=f("in.csv", b"")), InvalidInputError, "no such column.*found none"),
    (
        lambda t, f: t.update(source=f("in.csv", b"text\na,b\n")),
        InvalidInputError,
        "a row is not like the header.*2 fields.*line 2",
    ),
    (
        lambda t, f: t.update(source=f("in.csv", b"text,x\na\n")),
        InvalidInputError,
        "a row is not like the header.*1 fields.*line 2",
    ),
    (lambda t, f: t.update(source=f("in.csv", b'text\n"a\nb\n')), InvalidInputError, "the table cannot be read.*unexpected end"),
    (lambda t, f: t.update(source=f("in.csv", b'text\n"' + b"a" * (9 << 20))), InvalidInputError, "cannot be read.*field larger"),
    (lambda t, f: t.update(source=f("in.csv", b"text,text\na,b\n")), InvalidInputError, "a column's name is there twice"),
    (lambda t, f: t.update(source=f("in.csv", b"text,reflex_error\na,b\n")), InvalidInputError, "in the table already.*--prefix"),
    (lambda t, f: t.update(source=f("in.xls", b"text\na\n")), UnsupportedError, "no such kind of table"),
    (lambda t, f: t.update(source=t["source"] + "x.csv"), InputOutputError, "cannot read the table; found No such file"),
    (
        lambda t, f: t.update(source=os.path.dirname(f("d.csv/x", b""))),
        InputOutputError,
        "cannot read the table; found Is a directory",
    ),
    (lambda t, f: t.update(target=t["source"]), InvalidInputError, "the output is the input"),
    (lambda t, f: t.update(target="/nowhere/out.csv"), InputOutputError, "cannot keep parts"),
    (lambda t, f: t.update(labels=[" fox"]), InvalidInputError, "the labels are no choice"),
    (lambda t, f: t.update(labels=[" fox", " fox"]), InvalidInputError, "the labels are no choice"),
    (lambda t, f: t.update(labels=[" fox", ""]), InvalidInputError, "the labels are no choice"),
    (lambda t, f: t.update(temperature=-1.0), InvalidInputError, "temperature"),
    (lambda t, f: t.update(rule="som"), InvalidInputError, "rule"),
    (lambda t, f: t.update(delimiter=""), InvalidInputError, "the delimiter is no delimiter"),
    (lambda t, f: t.update(model="/nowhere.gguf"), ReflexError, "/nowhere.gguf"),
    (lambda t, f: t.update(model=t["source"]), ReflexError, "GGUF"),
    (lambda t, f: t.update(chat=True), ReflexError, "template"),
]


@pytest.mark.parametrize("change, kind, words", BAD, ids=[words for _, _, words in BAD])
def test_what_is_wrong_is_said_before_any_row(model, table, tmp_path, change, kind, words):
    def file(name, data):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    asked = {"source": table(), "target": str(tmp_path / "out.csv"), **OPTIONS, "model": model}
    change(asked, file)
    source, target = asked.pop("source"), asked.pop("target")
    with pytest.raises(kind, match=f"(?s){words}") as caught:
        score(source, target, **asked)
    assert len(caught.value.line().splitlines()) == 1
    assert not (tmp_path / "out.csv").exists() and not (tmp_path / "out.csv.parts").exists()


@pytest.mark.parametrize("data", [b"PAR1 this is none PAR1", b"", b"text\na\n"])
def test_what_is_no_parquet(model, tmp_path, data):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / "in.parquet").write_bytes(data)
    with pytest.raises(InvalidInputError, match="the table cannot be read"):
        score(str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), **OPTIONS | {"model": model})


def test_a_column_of_numbers_is_refused(model, tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"text": [1, 2]}), tmp_path / "in.parquet")
    with pytest.raises(InvalidInputError, match="the column holds no text; expected strings; found int64"):
        score(str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), **OPTIONS | {"model": model})


def test_missing_packages_are_named(model, table, tmp_path, monkeypatch):
    for name in ("ray", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnsupportedError, match="actors need Ray"):
        score(table(), str(tmp_path / "out.csv"), **OPTIONS | {"model": model, "actors": 1})
    (tmp_path / "in.parquet").write_bytes(b"")
    with pytest.raises(UnsupportedError, match="Parquet needs pyarrow"):
        score(str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), **OPTIONS | {"model": model})


# ---- runs that were ended ----


def command(source, target, model, *more, before=""):
    """A process that scores a table by itself; `before`: Python that runs first."""
    words = [source, target, "--model", model, "--prompt-column", "text", "--labels", *LABELS, *more]
    code = f"import sys\nsys.path.insert(0, {str(process.ROOT)!r})\n{before}\n"
    code += "from reflex.integrations.ray import main\nsys.exit(main())"
    options = ["--actors", "0", "--ctx", "128", "--json", "--backend", "cpu", "--rows", "2"]
    return [sys.executable, "-c", code, *words, *options]


STOPPED = """
from reflex.integrations import scorer
import time
row, count = scorer.Scorer._row, 0
def slow(self, text):
    global count
    count += 1
    if count > 8:
        time.sleep(1000)
    return row(self, text)
scorer.Scorer._row = slow
"""


@pytest.mark.parametrize("ending, code", [(signal.SIGKILL, -9), (signal.SIGTERM, 130), (signal.SIGINT, 130)])
def test_an_ended_run_goes_on(model, table, tmp_path, ending, code):
    source, target, whole = table(), str(tmp_path / "out.csv"), str(tmp_path / "whole.csv")
    score(source, whole, **OPTIONS | {"model": model})
    process_ = subprocess.Popen(command(source, target, model, before=STOPPED), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.until(lambda: process_.poll() is not None or os.path.exists(f"{target}.parts/00000003.json"))
    process_.send_signal(ending)
    _, errors = process_.communicate(timeout=300)
    assert process_.returncode == code and not os.path.exists(target)
    if code == 130:
        assert errors.decode().splitlines()[-1] == "interrupted: what is done is kept, the same command goes on from there"
    done = subprocess.run(command(source, target, model), capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout)
    assert found["resumed"] == 8 and found["scored"] == 15
    assert "going on after 8 of 23 rows" in done.stderr
    with open(target, "rb") as one, open(whole, "rb") as other:
        assert one.read() == other.read()


def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(model, table, tmp_path):
    source, target = table(), str(tmp_path / "out.csv")
    # the parts fit, the table does not
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))  # noqa: E731
    done = subprocess.run(command(source, target, model), preexec_fn=limit, capture_output=True, text=True, timeout=300)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 8 and "cannot write the table; found File too large" in line and "run the same command again" in line
    assert not os.path.exists(target)
    done = subprocess.run(command(source, target, model), capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout)["resumed"] == 23 and len(rows_of(target)) == 23
    other = str(tmp_path / "other.csv")  # not even a part fits
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # noqa: E731
    done = subprocess.run(command(source, other, model), preexec_fn=limit, capture_output=True, text=True, timeout=300)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 8 and "cannot write" in line and "File too large" in line


def ended(model, table, tmp_path):
    """(source, target) of a run that ended before its table was written."""
    source, target = table(), str(tmp_path / "out.csv")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))  # noqa: E731
    assert subprocess.run(command(source, target, model), preexec_fn=limit, capture_output=True, timeout=300).returncode == 8
    return source, target


def test_parts_of_another_run_are_refused(model, table, tmp_path):
    source, target = ended(model, table, tmp_path)
    asked = OPTIONS | {"model": model, "rows": 2}
    for change, name in (({"rule": "mean"}, "rule"), ({"labels": [" a", " b"]}, "labels"), ({"rows": 3}, "rows")):
        with pytest.raises(InvalidInputError, match=f"the parts are of another run.*another {name}"):
            score(source, target, **asked | change)
    with open(source, "a") as file:
        file.write("99,another,x\n")
    with pytest.raises(InvalidInputError, match="another total, another input"):
        score(source, target, **asked)


def test_broken_parts_are_made_again(model, table, tmp_path):
    source, target = ended(model, table, tmp_path)
    for number, data in ((0, ""), (1, "[[1]]"), (2, "[1"), (3, "{}")):
        with open(f"{target}.parts/{number:08}.json", "w") as file:
            file.write(data)
    os.unlink(f"{target}.parts/{4:08}.json")
    found = score(source, target, **OPTIONS | {"model": model, "rows": 2})
    assert found["scored"] == 10 and found["resumed"] == 13 and len(rows_of(target)) == 23


def test_a_folder_of_something_else_is_left_alone(model, table, tmp_path):
    (tmp_path / "out.csv.parts").mkdir()
    (tmp_path / "out.csv.parts" / "mine").write_text("precious")
    with pytest.raises(InvalidInputError, match="the folder of parts holds something else"):
        score(table(), str(tmp_path / "out.csv"), **OPTIONS | {"model": model})
    assert (tmp_path / "out.csv.parts" / "mine").read_text() == "precious"


def test_one_run_at_a_time(tmp_path):
    first = Parts(str(tmp_path / "out.csv"), {"a": 1}, 2, 5)
    with pytest.raises(StateError, match="another run makes this table"):
        Parts(str(tmp_path / "out.csv"), {"a": 1}, 2, 5)
    first.close()
    Parts(str(tmp_path / "out.csv"), {"a": 1}, 2, 5).close()


def test_a_model_is_known_by_its_content(model, tmp_path):
    path = str(tmp_path / "model.gguf")
    with open(model, "rb") as file:
        whole = file.read()
    marks = set()
    for at in (None, len(whole) // 2, len(whole) - 1):
        data = bytearray(whole)
        if at:
            data[at] ^= 1
        for more in (b"", b"x"):
            with open(path, "wb") as file:
                file.write(data + more)
            marks.add(mark_of(path))
    assert len(marks) == 6 and mark_of(model) in marks


def test_an_empty_table(model, table, tmp_path):
    found = score(table([]), str(tmp_path / "out.csv"), **OPTIONS | {"model": model})
    assert found["rows"] == found["scored"] == 0 and rows_of(tmp_path / "out.csv") == []


def test_the_meter_speaks_seldom():
    now, said = [0.0], []
    meter = Meter(said.append, 1000, 100, lambda: now[0])
    for _ in range(900):
        now[0] += 1.0
        meter(1)
    assert 8 < len(said) < 40 and said[0] == " 10%  102 of 1000 rows, 1 rows/s, 898 s left"


@pytest.mark.parametrize("option", ["--actors=-1", "--threads=0", "--rows=0", "--ctx=0"])
def test_numbers_out_of_range(option, model, table, tmp_path, capsys):
    words = [table(), str(tmp_path / "out.csv"), "--model", model, "--prompt-column", "text", "--labels", *LABELS, option]
    assert main(words) == 2 and len(capsys.readouterr().err.splitlines()) == 1
