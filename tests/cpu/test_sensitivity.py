"""The scan that ranks tensors by what another type does: it finds the damaged one, and its numbers are those of `compare`."""

import json
import subprocess
import sys

import numpy as np
import process
import pytest
from rewrite import in_type, rewrite
from tiny import write

import reflex
from reflex import lab
from reflex.errors import ContextOverflowError, InvalidInputError, OutOfMemoryError
from reflex.lab.imatrix import read as read_importance
from reflex.lab.imatrix import write as write_importance
from reflex.lab.sensitivity import Scan, group_of

TEXT = lab.TEXT[:500]
FRAGILE = "blk.1.attn_output.weight"
FIELDS = ["command", "model", "backend", "tried", "by", "method", "window", "stride", "begin", "tokens", "scored", "perplexity"]
FIELDS += ["rows", "unfit", "unchanged", "complete"]
KINDS = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "token_embd"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """plain.gguf; fragile.gguf: every matrix lies on the grid of Q4_0 already, but FRAGILE, where one value per block is so large
    that the others become nothing in Q4_0."""
    folder = tmp_path_factory.mktemp("models")
    write("llama-smollm", folder / "plain.gguf")
    write("llama-smollm", folder / "on-grid.gguf", kind="Q4_0")

    def spread(name, values):
        x = values()
        if name == FRAGILE:
            x.reshape(-1, 32)[:, 5] *= 40
        return x, "F32"

    rewrite(folder / "on-grid.gguf", folder / "fragile.gguf", spread)
    (folder / "text.txt").write_text(TEXT)
    return folder


@pytest.fixture(scope="module", params=["cpu", "reference"])
def model(request, folder):
    with reflex.load(folder / "plain.gguf", backend=request.param, threads=2) as found:
        yield found


@pytest.mark.parametrize("by, name", [("tensor", FRAGILE), ("kind", "attn_output"), ("layer", "blk.1")])
@pytest.mark.parametrize("backend, floor", [("cpu", 5e-2), ("reference", 1e-9)])  # blocks make the cpu round activations too
def test_it_finds_the_tensor_that_is_damaged(folder, backend, floor, by, name):
    with reflex.load(folder / "fragile.gguf", backend=backend, threads=2) as fragile:
        found = lab.sensitivity(fragile, TEXT, "Q4_0", by=by, tokens=150)
    first, second = found.rows[:2]
    assert first.name == name and first.kl > 0.1 and first.same_top < 0.95
    assert second.kl < floor * first.kl + 1e-9 and second.error < 1e-6 < first.error


def test_its_numbers_are_those_of_compare(folder, tmp_path, model):
    found = lab.sensitivity(model, TEXT, "Q4_0", by="kind", tokens=150, window=100, stride=50)
    assert [row.kl for row in found.rows] == sorted((row.kl for row in found.rows), reverse=True)
    assert {row.name for row in found.rows} == KINDS
    row = next(row for row in found.rows if row.name == "ffn_up")
    path = rewrite(folder / "plain.gguf", tmp_path / "other.gguf", in_type("Q4_0", "ffn_up"))
    with reflex.load(path, backend=model.backend, threads=2) as other:
        want = lab.compare(model, other, TEXT, tokens=150, window=100, stride=50)
    for name in ("kl", "kl_error", "kl_max", "same_top", "same_top_error", "ratio", "ratio_error"):
        assert getattr(row, name) == getattr(want.text, name)
    assert found.perplexity == pytest.approx(want.text.perplexity_a, rel=1e-12) and found.scored == want.text.scored
    changed = want.changed
    assert row.tensors == len(changed) == 3 and (row.types_before, row.types_after) == (("F32",), ("Q4_0",))
    assert row.bytes_before == sum(t.bytes_a for t in changed) and row.bytes_after == sum(t.bytes_b for t in changed)
    assert min(t.error for t in changed) <= row.error <= max(t.error for t in changed)


def test_the_unmodified_model_is_computed_once(model):
    calls = []
    evaluate = model.session().core.plan.evaluate
    model.session().core.plan.evaluate = lambda *words: (calls.append(len(words[0])), evaluate(*words))
    try:
        found = lab.sensitivity(model, TEXT, "Q4_0", by="kind", tokens=60)
    finally:
        model.session().core.plan.evaluate = evaluate
    assert len(found.rows) == 8 and calls == [59]


def test_groups():
    names = ("blk.12.ffn_up.weight", "token_embd.weight", "blk.0.ffn_gate_exps.weight")
    assert [group_of(name, "tensor") for name in names] == [*names]
    assert [group_of(name, "layer") for name in names] == ["blk.12", "token_embd.weight", "blk.0"]
    assert [group_of(name, "kind") for name in names] == ["ffn_up", "token_embd", "ffn_gate_exps"]


def test_only_some_tensors_and_the_first_type_that_fits(model):
    found = lab.sensitivity(model, TEXT, "Q2_K,Q8_0", tensors=[r"blk\.[01]\.ffn_up", "blk.2.attn_q.weight"], by="tensor", tokens=40)
    assert {row.name for row in found.rows} == {"blk.0.ffn_up.weight", "blk.1.ffn_up.weight", "blk.2.attn_q.weight"}
    assert {row.types_after for row in found.rows} == {("Q8_0",)}
    left = lab.sensitivity(model, TEXT, "Q8_0", tensors="attn_q", tokens=40)
    assert left.unfit == left.unchanged == ()
    with model.with_types({"attn_q": "Q8_0"}) as changed:
        left = lab.sensitivity(changed, TEXT, "Q8_0", tensors="attn_[qk]", tokens=40)
        assert len(left.unchanged) == 3 and [row.name for row in left.rows] == ["attn_k"]
        assert left.model.endswith("with 3 tensors in Q8_0")
    assert len(lab.sensitivity(model, TEXT, "F16", tensors=["attn_q", "attn_q"], tokens=40).rows) == 1


def test_step_by_step(model):
    scan = Scan(model, TEXT, "Q4_0", tokens=40)
    assert scan.result().rows == () and scan.result().perplexity is None and not scan.result().complete
    steps = iter(scan)
    next(steps)
    steps.close()
    assert len(scan.result().rows) == 1 and not scan.result().complete and "Interrupted" in scan.result()._repr_html_()
    for _ in scan:  # goes on where it was left
        pass
    whole = scan.result()
    assert whole.complete and whole == lab.sensitivity(model, TEXT, "Q4_0", tokens=40)
    assert "attn_v" in whole._repr_html_() and [row["name"] for row in whole.table()] == [row.name for row in whole.rows]


def test_refused(model, monkeypatch):
    for options, error, words in (
        ({"type": "Q2_K"}, InvalidInputError, "no tensor can get this type.*22 tensors whose rows do not fit"),
        ({"type": "F32"}, InvalidInputError, "22 that have it"),
        ({"by": "head"}, InvalidInputError, "kind, layer, tensor"),
        ({"tensors": "nonesuch"}, InvalidInputError, "no tensor is meant"),
        ({"window": 4000}, ContextOverflowError, "at most 1024 tokens"),
        ({"tokens": 1}, InvalidInputError, "the text is too short"),
    ):
        with pytest.raises(error, match=words) as caught:
            lab.sensitivity(model, TEXT, **{"type": "Q4_0", **options})
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(sys.modules[Scan.__module__], "MOST_BYTES", 1000)
    with pytest.raises(OutOfMemoryError, match="use fewer tokens"):
        lab.sensitivity(model, TEXT, "Q4_0")


# ---- the command ---------------------------------------------------------------------------------------------


def ran(folder, *argv, code=0, before=""):
    done = subprocess.run(process.words(*argv, before=before), capture_output=True, timeout=300, cwd=folder)
    assert done.returncode == code, done.stderr.decode()
    return done


ARGV = ("sensitivity", "plain.gguf", "--type", "Q4_0", "--text", "text.txt", "--tokens", "40")


def test_command(folder):
    found = json.loads(ran(folder, *ARGV, "--json").stdout)
    with reflex.load(folder / "plain.gguf", backend="cpu") as loaded:
        want = lab.sensitivity(loaded, TEXT, "Q4_0", tokens=40)
    assert list(found) == ["schema_version", "type", *FIELDS] and found["type"] == "result"
    assert found["rows"] == want.to_dict()["rows"] and found["perplexity"] == want.perplexity
    lines = ran(folder, *ARGV).stdout.decode().splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(want.rows)]] == [row.name for row in want.rows]
    assert f"unmodified: perplexity {want.perplexity:.4f} on {want.scored} tokens" in lines[-1]
    some = json.loads(ran(folder, *ARGV, "--json", "--by", "layer", "--tensors", "ffn", "--tensors", "blk.1.attn_q.weight").stdout)
    assert {row["name"]: row["tensors"] for row in some["rows"]} == {"blk.0": 3, "blk.1": 4, "blk.2": 3}


def test_an_importance_matrix_is_used(folder):
    """Its file has sums of squares; half of the columns matter, and the scan gives what the same matrix gives in Python."""
    sums = np.where(np.arange(64) % 2, 1.0, 1e4).astype(np.float32).reshape(1, 64)
    names = [f"blk.{layer}.attn_q.weight" for layer in range(3)]
    write_importance(str(folder / "importance.gguf"), {name: (sums, np.ones(1)) for name in names})
    argv = (*ARGV, "--tensors", "attn_q", "--json")
    plain, weighted = (json.loads(ran(folder, *argv, *more).stdout) for more in ((), ("--imatrix", "importance.gguf")))
    entries = read_importance(str(folder / "importance.gguf")).entries
    with reflex.load(folder / "plain.gguf", backend="cpu") as loaded:
        want = lab.sensitivity(loaded, TEXT, "Q4_0", tensors="attn_q", importance=entries, tokens=40)
    assert weighted["rows"] == want.to_dict()["rows"] != plain["rows"]
    assert b"cannot open the importance matrix" in ran(folder, *argv, "--imatrix", "nonesuch", code=3).stderr


def test_ctrl_c_prints_what_is_known(folder):
    code = """
import os, signal
import reflex.lab.sensitivity
module = __import__("sys").modules["reflex.lab.sensitivity"]
inner, number = module.Scan._swap, 0
def watched(*words):
    global number
    number += 1
    if number == 3:
        os.kill(os.getpid(), signal.SIGINT)
    return inner(*words)
module.Scan._swap = watched
"""
    done = ran(folder, *ARGV, code=130, before=code)
    part = json.loads(ran(folder, *ARGV, "--json", code=130, before=code).stdout)
    assert done.stdout.decode().splitlines()[-1] == "interrupted after 2 of 8" and done.stderr == b""
    assert len(part["rows"]) == 2 and not part["complete"]


@pytest.mark.parametrize(
    "argv, code, words",
    [
        (("--type", "Q4_5"), 3, "unknown quantization type"),
        (("--type", "Q2_K"), 2, "no tensor can get this type"),
        (("--window", "2000"), 6, "at most 1024 tokens"),
        (("--text", "nonesuch"), 8, "cannot read the text"),
        (("--picture", "x.gif"), 2, "no kind of picture"),
    ],
)
def test_errors_of_the_command(folder, argv, code, words):
    done = ran(folder, *ARGV, *argv, code=code)
    (line,) = done.stderr.decode().splitlines()
    assert words in line and done.stdout == b""


def test_pictures(folder, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    with reflex.load(folder / "plain.gguf", threads=2) as loaded, loaded.with_types({"ffn": "Q4_0"}) as changed:
        for by in ("kind", "layer", "tensor"):
            found = lab.sensitivity(loaded, TEXT, "Q4_0", by=by, tokens=30)
            axes = found.plot()
            assert len(axes.images if by == "tensor" else axes.patches) == (1 if by == "tensor" else len(found.rows))
        compared = lab.compare(loaded, changed, TEXT, tokens=30)
        assert len(compared.plot().lines) == 3 and compared.plot(axes) is axes
        assert not lab.compare(loaded, loaded).plot().lines
    pyplot.close("all")
    for name, start in (("c.png", b"\x89PNG"), ("c.svg", b"<?xml")):
        assert ran(folder, *ARGV, "--picture", tmp_path / name).stderr.decode() == f"wrote {tmp_path / name}\n"
        assert (tmp_path / name).read_bytes().startswith(start)
    ran(folder, *ARGV, "--picture", tmp_path / "nonesuch" / "c.png", code=8)
