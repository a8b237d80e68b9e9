"""Perplexity and comparisons on tiny models: against the timeline, against llama.cpp's logits, and as commands."""

import json
import math
import subprocess
import sys

import numpy as np
import process
import pytest
from llama import Llama
from rewrite import rewrite
from tiny import write

import reflex
from reflex import lab
from reflex.errors import ContextOverflowError, InternalError, InvalidInputError
from reflex.lab.divergence import Differences
from reflex.lab.text import TEXT
from reflex.lab.windows import Windows

PART = TEXT[:600]
PERPLEXITY = ["command", "model", "backend", "method", "window", "stride", "begin", "tokens", "windows", "scored", "perplexity"]
PERPLEXITY += ["error", "nats", "nats_error", "complete"]
COMPARED = ["command", "a", "b", "backend_a", "backend_b", "bytes_a", "bytes_b", "tensors", "text", "complete"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files: plain and noisy, two of one model without a begin token; begun, one with; other, of another model;
    shifted, plain with other ids for the same words."""
    folder = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(3)

    def noise(name, values):
        if "attn_v" in name or "ffn_up" in name:
            x = values()
            return x + random.normal(0, 0.2 * x.std(), x.shape).astype(np.float32), "F32"
        return None

    write("llama-smollm", folder / "plain.gguf")
    write("gemma3", folder / "begun.gguf")
    write("qwen2", folder / "other.gguf")
    write("llama-smollm", folder / "shifted.gguf", tokenizer="gpt2")
    for name in ("plain", "begun"):
        rewrite(folder / f"{name}.gguf", folder / f"{name}-noisy.gguf", noise)
    (folder / "text.txt").write_text(PART)
    return folder


@pytest.fixture(scope="module", params=["cpu", "reference"])
def model(request, folder):
    with reflex.load(folder / "plain.gguf", backend=request.param, threads=2) as found:
        yield found


def test_perplexity_is_that_of_the_timeline(model):
    ids = model.tokenize(PART, parse_special=False)[:200]
    found = lab.perplexity(model, PART, window=1024, tokens=200)
    known = model.session().logprobs(ids)
    assert found.nats == pytest.approx(-known.mean, rel=1e-6) and found.perplexity == pytest.approx(known.perplexity, rel=1e-6)
    assert found.scored == 199 and found.windows == 1 and found.begin is None


def test_a_model_is_not_away_from_itself(model, folder):
    """Exactly: the same object, the same file loaded twice, and windows that the cache has seen."""
    with reflex.load(folder / "plain.gguf", backend=model.backend, threads=1) as again:
        for other in (model, again, model):
            found = lab.compare(model, other, PART, window=64, stride=40)
            text = found.text
            assert (text.kl, text.kl_max, text.same_top, text.ratio, text.top_change_rms) == (0, 0, 1, 1, 0)
            assert not found.changed and text.perplexity_a == text.perplexity_b


@pytest.mark.parametrize(
    "name, windows", [("plain", {"window": 96, "stride": 32}), ("begun", {"window": 96, "method": "llama.cpp"})]
)
def test_numbers_are_those_of_llama_cpps_logits(folder, name, windows):
    """Weights are F32, so that no rounding of activations stands between."""
    a, b = folder / f"{name}.gguf", folder / f"{name}-noisy.gguf"
    differences = Differences()
    with reflex.load(a, threads=2, backend="cpu") as first, reflex.load(b, threads=2, backend="cpu") as second:
        compared = lab.compare(first, second, PART, **windows)
        perplexity = lab.perplexity(second, PART, **windows)
        cut = Windows(first.session().core, PART, **windows)
    sides = [Llama(path, context=128) for path in (a, b)]
    for ids, start in cut:
        logits = [side.logits(ids) for side in sides]
        for place in range(start, len(ids)):
            differences.add(logits[0][place - 1], logits[1][place - 1], ids[place])
    for side in sides:
        side.close()
    want = differences.summary(cut, len(cut))
    assert compared.text.kl > 0.01 and 0.3 < compared.text.same_top < 1
    for field, value in want.to_dict().items():
        near = pytest.approx(value, rel=2e-3, abs=1e-5) if isinstance(value, float) else value
        assert getattr(compared.text, field) == near, field
    assert perplexity.perplexity == pytest.approx(want.perplexity_b, rel=1e-4) == compared.text.perplexity_b
    assert perplexity.error == pytest.approx(want.perplexity_b_error, rel=1e-3)
    assert perplexity.begin == (None if name == "plain" else "<s>")
    assert {t.name.split(".")[2] for t in compared.changed} == {"attn_v", "ffn_up"}
    for tensor in compared.changed:
        assert (tensor.error, tensor.cosine) == pytest.approx((0.2, 1 / math.hypot(1, 0.2)), rel=0.05)


def test_refused(folder, model):
    for options, error, words in (
        ({"window": 2000}, ContextOverflowError, "at most 1024 tokens; found 2000"),
        ({"tokens": 1}, InvalidInputError, "the text is too short"),
        ({"method": "llama.cpp", "tokens": 100, "window": 64}, InvalidInputError, "two windows"),
    ):
        with pytest.raises(error, match=words):
            lab.perplexity(model, PART, **options)
        with pytest.raises(error, match=words):
            lab.compare(model, model, PART, **options)
    with reflex.load(folder / "other.gguf") as other, pytest.raises(InvalidInputError, match="not of one model"):
        lab.compare(model, other, PART)


def test_weights_that_are_no_numbers(folder, tmp_path):
    def spoil(name, values):
        return (values() * np.float32(np.nan), "F32") if name == "output_norm.weight" else None

    path = rewrite(folder / "plain.gguf", tmp_path / "nan.gguf", spoil)
    with reflex.load(path, backend="cpu") as bad, reflex.load(folder / "plain.gguf", backend="cpu") as good:
        with pytest.raises(InternalError, match="the logits are not numbers"):
            lab.perplexity(bad, PART)
        with pytest.raises(InternalError, match="the logits are not numbers"):
            lab.compare(good, bad, PART)


def test_the_lab_is_there_after_import_reflex():
    code = f"import sys; sys.path.insert(0, {str(process.ROOT)!r})\nimport reflex\n"
    code += "print('numpy' in sys.modules, reflex.lab.perplexity)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("False <function perplexity"), done.stderr


# ---- commands ------------------------------------------------------------------------------------------------


def ran(*argv, code=0, **options):
    done = process.reflex(*argv, **options)
    assert done.returncode == code, done.stderr.decode()
    return done


def result(*argv, code=0, **options):
    (line,) = ran(*argv, "--json", code=code, **options).stdout.splitlines()
    return json.loads(line)


def test_perplexity_command(folder):
    model, text = folder / "plain.gguf", folder / "text.txt"
    found = result("perplexity", model, text, "--window", "64", "--stride", "16")
    assert list(found) == ["schema_version", "type", *PERPLEXITY]
    assert (found["window"], found["stride"], found["method"], found["begin"]) == (64, 16, "sliding", None)
    with reflex.load(model, backend="cpu") as loaded:
        want = lab.perplexity(loaded, PART, window=64, stride=16).to_dict()
    assert {name: found[name] for name in want} == {**want, "model": str(model)}
    shown = ran("perplexity", model, text, "--window", "64", "--stride", "16").stdout.decode()
    assert f"perplexity {want['perplexity']:.4f} ± {want['error']:.4f}" in shown
    assert f"{want['scored']} of {want['tokens']} tokens scored" in shown
    assert "windows: sliding, 64 tokens, stride 16; no begin token" in shown
    piped = result("perplexity", model, "-", "--window", "64", "--stride", "16", stdin=PART.encode())
    assert piped["perplexity"] == want["perplexity"]


def test_the_begin_token_is_named(folder):
    shown = ran("perplexity", folder / "begun.gguf", folder / "text.txt", "--method", "llama.cpp", "--window", "64").stdout.decode()
    assert "windows: llama.cpp, 64 tokens, stride 64; each begins with '<s>', which is not scored" in shown


def test_compare_command(folder, tmp_path):
    a, b, text = folder / "plain.gguf", folder / "plain-noisy.gguf", folder / "text.txt"
    tensors = result("compare", a, b)
    assert list(tensors) == ["schema_version", "type", *COMPARED] and tensors["text"] is None
    found = result("compare", a, b, "--text", text, "--tokens", "150")
    assert found["tensors"] == tensors["tensors"] and found["backend_a"] == found["backend_b"] == "cpu"
    with reflex.load(a, backend="cpu") as first, reflex.load(b, backend="cpu") as second:
        want = lab.compare(first, second, PART, tokens=150)
    assert found["text"] == want.text.to_dict()
    shown = ran("compare", a, b, "--text", text, "--tokens", "150").stdout.decode()
    assert f"KL divergence {want.text.kl:.6f} ± {want.text.kl_error:.6f} nats per token" in shown
    assert f"same top token {100 * want.text.same_top:.2f}" in shown
    assert len([line for line in shown.splitlines() if line.startswith("blk.")]) == len(want.changed)


ERRORS = {  # arguments -> (exit code, words)
    "no such text": (("perplexity", "plain.gguf", "nonesuch"), 8, "cannot read the text"),
    "a text too short": (("perplexity", "plain.gguf", "text.txt", "--tokens", "1"), 2, "the text is too short"),
    "less than two windows": (("perplexity", "plain.gguf", "text.txt", "--method", "llama.cpp"), 2, "two windows"),
    "a window beyond the context": (("perplexity", "plain.gguf", "text.txt", "--window", "1025"), 6, "at most 1024 tokens"),
    "a window beyond --ctx": (("perplexity", "plain.gguf", "text.txt", "--ctx", "64", "--window", "65"), 6, "raise --ctx"),
    "no such model": (("compare", "plain.gguf", "nonesuch.gguf"), 3, "cannot open"),
    "another model": (("compare", "plain.gguf", "other.gguf"), 2, "not of one model"),
    "another model, with a text": (("compare", "plain.gguf", "other.gguf", "--text", "text.txt"), 2, "not of one model"),
    "another vocabulary": (("compare", "plain.gguf", "shifted.gguf", "--text", "text.txt"), 2, "tokenize the text differently"),
    "no kind of picture": (("compare", "plain.gguf", "plain.gguf", "--picture", "x.txt"), 2, "no kind of picture"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_of_commands(folder, case):
    argv, code, words = ERRORS[case]
    done = ran(*argv, code=code, cwd=folder)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("reflex: ") and words in line and done.stdout == b""


def interrupted(folder, number, *argv):
    """A command that sends itself Ctrl-C just after the given evaluation."""
    code = f"""
import os, signal
import reflex.backends.cpu as cpu
inner, number = cpu.Plan.evaluate, 0
def watched(*words, **named):
    global number
    number += 1
    inner(*words, **named)
    if number == {number}:
        os.kill(os.getpid(), signal.SIGINT)
cpu.Plan.evaluate = watched
"""
    return subprocess.run(process.words(*argv, before=code), capture_output=True, timeout=300, cwd=folder)


def test_ctrl_c_prints_what_is_known(folder):
    argv = ("perplexity", "plain.gguf", "text.txt", "--window", "64", "--stride", "16")
    done = interrupted(folder, 3, *argv)
    assert done.returncode == 130 and done.stderr == b"" and b"(interrupted after 2 of" in done.stdout
    part = json.loads(interrupted(folder, 3, *argv, "--json").stdout)
    assert part["windows"] == 2 and not part["complete"] and part["scored"] == 63 + 16
    with reflex.load(folder / "plain.gguf", backend="cpu") as model:
        assert part["perplexity"] == lab.perplexity(model, PART, window=64, stride=16, tokens=64 + 16).perplexity
    nothing = interrupted(folder, 1, *argv)
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (130, b"", b"")
    compared = interrupted(folder, 3, "compare", "plain.gguf", "plain-noisy.gguf", "--text", "text.txt", "--window", "64", "--json")
    part = json.loads(compared.stdout)
    assert compared.returncode == 130 and part["text"]["windows"] == 1 and not part["complete"]
