"""Perplexity and KL divergence of a real model beside the same numbers from llama.cpp's logits.

Both engines round activations to 8 bits, each in its way, and so differ from each other about as much as llama.cpp differs from
float32: 0.009 nats in the mean of 508 tokens of this text. The KL divergence between the engines on one file measures that noise.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from llama import Llama
from real import locate
from rewrite import in_type, rewrite

import reflex
from reflex import lab
from reflex.lab.divergence import Differences, rows
from reflex.lab.windows import Windows

CUT = {"method": "llama.cpp", "window": 256, "tokens": 512}
NOISE = 0.02  # nats


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    """(files A and B, windows, next tokens, {file: llama.cpp's logits}): B is A with one kind of matrix in another type."""
    path = locate("smollm2")
    other = rewrite(path, tmp_path_factory.mktemp("models") / "other.gguf", in_type("Q4_0", "attn_v"))
    with reflex.load(path) as model:
        windows = Windows(model.session().core, lab.TEXT, **CUT)
    tokens = [token for ids, first in windows for token in ids[first:]]
    found = {}
    for file in (path, other):
        llama = Llama(file, context=256, threads=2)
        found[file] = np.concatenate([llama.logits(ids)[first - 1 : -1] for ids, first in windows])
        llama.close()
    return (path, other), windows, tokens, found


def differences(a, b, tokens, windows):
    found = Differences()
    for x, y, token in zip(a, b, tokens, strict=True):
        found.add(x, y, token)
    return found.summary(windows, len(windows))


def test_perplexity_is_that_of_llama_cpp(logits):
    (path, _), windows, tokens, found = logits
    with reflex.load(path, threads=2) as model:
        ours = lab.perplexity(model, lab.TEXT, **CUT)
    theirs = differences(found[path], found[path], tokens, windows)
    assert ours.scored == theirs.scored == len(tokens) == 2 * 127
    assert ours.nats == pytest.approx(np.log(theirs.perplexity_a), abs=NOISE)
    assert ours.error == pytest.approx(theirs.perplexity_a_error, rel=0.05)


def test_kl_divergence_is_that_of_llama_cpp(logits):
    (path, other), windows, tokens, found = logits
    theirs = differences(found[path], found[other], tokens, windows)
    with reflex.load(path, threads=2) as a, reflex.load(other, threads=2) as b:
        ours = lab.compare(a, b, lab.TEXT, **CUT)
        mine = [row for ids, first in windows for row, _ in rows(a.session().core, ids, first)]
    noise = differences(mine, found[path], tokens, windows).kl
    assert noise < 0.01 < theirs.kl
    assert ours.text.kl == pytest.approx(theirs.kl, abs=noise + theirs.kl_error)
    assert ours.text.same_top == pytest.approx(theirs.same_top, abs=3 * theirs.same_top_error)
    assert ours.text.ratio == pytest.approx(theirs.ratio, abs=3 * theirs.ratio_error)
    assert {t.name.split(".")[2] for t in ours.changed} == {"attn_v"}


def test_a_scan_of_the_real_model(logits):
    """By kind, on a small text: what was changed in the file above comes out as in the comparison."""
    (path, other), *_ = logits
    with reflex.load(path, threads=2) as model, reflex.load(other, threads=2) as changed:
        scan = lab.sensitivity(model, lab.TEXT, "Q4_0", tensors=["attn_[vk]"], tokens=128)
        compared = lab.compare(model, changed, lab.TEXT, tokens=128)
    assert [row.name for row in scan.rows] == ["attn_v", "attn_k"]
    assert scan.rows[0].kl == compared.text.kl and scan.rows[0].ratio == compared.text.ratio


def test_the_example_of_the_page_runs(capsys):
    locate("smollm2")
    page = (Path(__file__).parents[2] / "docs" / "measures.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(compile(block, "docs/measures.md", "exec"), names)
    best, kl = capsys.readouterr().out.splitlines()
    assert best == " Paris" and 0.01 < float(kl) < 1
    names["model"].close()
    names["smaller"].close()
