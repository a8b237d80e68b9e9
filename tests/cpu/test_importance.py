"""Importance matrices that Reflex collects: against the products that llama.cpp computes, against taps, and as a command."""

import json
import subprocess

import gguf
import libgguf
import numpy as np
import process
import pytest
import tiny
from llama import Llama, array

import reflex
from reflex import lab
from reflex.errors import InvalidInputError
from reflex.lab import imatrix
from reflex.quant.types import by_id

TEXT = lab.TEXT[:700]
WINDOW = 48
MODELS = ("llama-smollm", "gemma3", "phi3", "gpt2", "qwen3moe", "qwen2moe", "gpt-oss", "deepseek2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model of each, in float32."""
    folder = tmp_path_factory.mktemp("importance")
    for name in MODELS:
        tiny.write(name, folder / f"{name}.gguf")
    (folder / "text.txt").write_text(TEXT)
    return folder


class Sums:
    """What llama.cpp multiplies with the matrices of layers: {name: [sums of squares [matrices, columns], rows [matrices]]}."""

    def __init__(self):
        self.found = {}

    def __call__(self, operation, node):
        if operation not in ("MUL_MAT", "MUL_MAT_ID"):
            return
        name, x = node.src[0][0].name.decode(), array(node.src[1][0]).astype(np.float64)
        if not name.startswith("blk."):
            return
        matrices, columns = node.src[0][0].ne[2], node.src[0][0].ne[0]
        sums, rows = self.found.setdefault(name, [np.zeros((matrices, columns)), np.zeros(matrices)])
        if operation == "MUL_MAT":
            for matrix in range(matrices):
                own = x[0, matrix::matrices].reshape(-1, columns)
                sums[matrix] += (own**2).sum(0)
                rows[matrix] += len(own)
            return
        chosen = array(node.src[2][0], np.int32)[0, 0]
        for row, experts in enumerate(chosen):
            for place, expert in enumerate(experts):
                sums[expert] += x[0, row, place % x.shape[2]] ** 2
                rows[expert] += 1


@pytest.mark.parametrize("name", MODELS)
def test_sums_are_those_of_the_products_that_llama_cpp_computes(folder, name):
    path = folder / f"{name}.gguf"
    with reflex.load(path, backend="reference") as model:
        found = lab.importance(model, TEXT, window=WINDOW, chunks=2)
        windows = lab.Collecting(model.session().core, TEXT, WINDOW, 2).windows
    watched = Sums()
    llama = Llama(path, context=64, watch=watched)
    for ids, _ in windows:
        llama.logits(ids)
    llama.close()
    assert set(found.sums) == set(watched.found) and (found.chunks, found.chunk_size) == (2, WINDOW)
    for key, (sums, rows) in watched.found.items():
        ours, counted = found.sums[key]
        np.testing.assert_array_equal(counted, rows, err_msg=key)
        np.testing.assert_allclose(ours, sums, rtol=2e-3, atol=1e-5 * sums.max(), err_msg=key)


@pytest.mark.parametrize("name", ["llama-smollm", "qwen3moe"])
def test_cpu_and_reference_agree(folder, name):
    both = []
    for backend in ("cpu", "reference"):
        with reflex.load(folder / f"{name}.gguf", backend=backend, threads=2) as model:
            both.append(lab.importance(model, TEXT, window=WINDOW).sums)
    for key, (sums, rows) in both[0].items():
        np.testing.assert_allclose(sums, both[1][key][0], rtol=2e-3, atol=1e-4 * sums.max(), err_msg=key)
        np.testing.assert_array_equal(rows, both[1][key][1])


def test_sums_are_those_of_taps_and_windows_longer_than_a_batch_count_whole(folder):
    """What the output projection multiplies are the heads, the output matrix the final norm."""
    with reflex.load(folder / "gemma3.gguf", backend="cpu") as model:
        text = lab.TEXT * 2
        found = lab.importance(model, text, window=600, chunks=1, output=True)
        (ids, _), *_ = lab.Collecting(model.session().core, text, 600, 1).windows
        trace = model.trace(ids, ["layers.2.heads", "final_norm"])
        assert "output.weight" not in found.sums  # gemma3's is the embedding
        heads = trace["layers.2.heads"].reshape(600, -1).astype(np.float64)
        np.testing.assert_allclose(found.sums["blk.2.attn_output.weight"][0][0], (heads**2).sum(0), rtol=1e-6)
        assert found.sums["blk.2.attn_output.weight"][1] == 600
    tiny.write("llama-smollm", folder / "untied.gguf", untied=True)
    with reflex.load(folder / "untied.gguf", backend="cpu") as model:
        found = lab.importance(model, TEXT, window=WINDOW, chunks=1, output=True)
        (ids, _), *_ = lab.Collecting(model.session().core, TEXT, WINDOW, 1).windows
        normed = model.trace(ids, "final_norm")["final_norm"].astype(np.float64)
        np.testing.assert_allclose(found.sums["output.weight"][0][0], (normed**2).sum(0), rtol=1e-6)


def test_experts_without_tokens_have_no_rows_and_count_as_ones(folder):
    with reflex.load(folder / "qwen3moe.gguf", backend="cpu") as model:
        found = lab.importance(model, TEXT, window=4, chunks=1)
    name = "blk.0.ffn_gate_exps.weight"
    sums, rows = found.sums[name]
    idle = rows == 0
    assert idle.any() and not idle.all() and rows.sum() % 4 == 0
    assert not sums[idle].any() and (found.entries[name][idle] == 1).all()


def test_both_files_say_the_same_and_others_read_them(folder, tmp_path):
    with reflex.load(folder / "qwen3moe.gguf", backend="cpu") as model:
        found = lab.importance(model, TEXT, window=WINDOW)
    for name in ("i.gguf", "i.dat"):
        found.save(tmp_path / name)
        read, theirs = imatrix.read(str(tmp_path / name)), libgguf.load_imatrix(str(tmp_path / name))
        assert read.chunks == found.chunks > 1 and set(read.entries) == set(theirs) == set(found.entries)
        for key, means in found.entries.items():
            np.testing.assert_allclose(read.entries[key].reshape(-1), means.reshape(-1), rtol=1e-6)
            np.testing.assert_allclose(np.asarray(theirs[key]).reshape(-1), means.reshape(-1), rtol=1e-6)
    reader = gguf.GGUFReader(tmp_path / "i.gguf")
    facts = {key: reader.fields[f"imatrix.{key}"].contents() for key in ("chunk_count", "chunk_size", "datasets")}
    assert facts == {"chunk_count": found.chunks, "chunk_size": WINDOW, "datasets": []}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for key, (sums, rows) in found.sums.items():
        np.testing.assert_array_equal(tensors[f"{key}.in_sum2"].data.reshape(sums.shape), sums)
        np.testing.assert_array_equal(tensors[f"{key}.counts"].data.reshape(-1), rows)


def test_the_command_makes_what_quantize_takes(folder, tmp_path):
    tiny.write("llama-smollm", tmp_path / "m.gguf", width=256, feed_forward=512, heads=4, kv_heads=2, head_dim=64)
    argv = ("imatrix", tmp_path / "m.gguf", folder / "text.txt", "-o", tmp_path / "i.gguf", "--window", str(WINDOW), "--json")
    done = process.reflex(*argv)
    (result,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, b"") and result["complete"] and result["unseen"] == []
    with reflex.load(tmp_path / "m.gguf", backend="cpu") as model:
        known = lab.importance(model, TEXT, window=WINDOW)
        assert (result["chunks"], result["tokens"], result["matrices"]) == (known.chunks, known.chunks * WINDOW, len(known.sums))
    values = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    read = imatrix.read(str(tmp_path / "i.gguf"))
    assert read.datasets == (str(folder / "text.txt"),)
    for key, means in known.entries.items():
        np.testing.assert_array_equal(read.entries[key], means)
    for recipe in ("Q4_K_M", "IQ1_S"):
        made = process.reflex("quantize", argv[1], tmp_path / "q.gguf", "--type", recipe, "--imatrix", tmp_path / "i.gguf")
        assert made.returncode == 0, made.stderr
        kinds = set()
        for tensor in gguf.GGUFReader(tmp_path / "q.gguf").tensors:
            if tensor.name in known.entries:
                kinds.add(by_id(tensor.tensor_type).name)
                rows = values[tensor.name].reshape(-1, int(tensor.shape[0]))
                wanted = libgguf.quantize_rows(rows, int(tensor.tensor_type), known.entries[tensor.name][0])
                assert tensor.data.tobytes() == wanted.tobytes(), tensor.name
        assert kinds >= ({"Q4_K", "Q6_K"} if recipe == "Q4_K_M" else {"IQ1_S"})


def test_ctrl_c_writes_what_the_windows_so_far_give(folder, tmp_path):
    code = """
import os, signal, sys
import reflex.lab.importance
module = sys.modules["reflex.lab.importance"]
inner, number = module.squares, 0
def watched(x):
    global number
    number += 1
    if number == {number}:
        os.kill(os.getpid(), signal.SIGINT)
    return inner(x)
module.squares = watched
"""
    with reflex.load(folder / "llama-smollm.gguf", backend="cpu") as model:
        collecting = lab.Collecting(model.session().core, TEXT, WINDOW)
        each, known = len(collecting.products), lab.importance(model, TEXT, WINDOW, chunks=2)
    for number, wanted in ((each * 2 + 3, known), (2, None)):
        argv = ("imatrix", folder / "llama-smollm.gguf", folder / "text.txt", "-o", "i.gguf", "--window", str(WINDOW))
        words = process.words(*argv, before=code.format(number=number))
        done = subprocess.run(words, capture_output=True, timeout=300, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (130, b"") and (b"interrupted after 2 of" in done.stdout) == bool(wanted)
        assert (tmp_path / "i.gguf").exists() == bool(wanted)
        if wanted:
            read = imatrix.read(str(tmp_path / "i.gguf"))
            assert read.chunks == 2
            for key, (sums, rows) in wanted.sums.items():
                np.testing.assert_array_equal(read.sums[key][0], sums)
                np.testing.assert_array_equal(read.sums[key][1], rows)
            (tmp_path / "i.gguf").unlink()


def refused(code, text, *argv, cwd=None):
    done = subprocess.run(process.words("imatrix", *argv), capture_output=True, timeout=300, cwd=cwd)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == code and len(lines) == 1 and text in lines[0], (done.returncode, lines)


def test_refusals(folder, tmp_path):
    model, text = folder / "llama-smollm.gguf", folder / "text.txt"
    refused(2, "the output is the input", model, text, "-o", text)
    refused(2, "the output is the input", model, text, "-o", model)
    refused(8, "cannot write the file", model, text, "-o", tmp_path / "no" / "i.gguf")
    refused(2, "not a regular file", model, text, "-o", tmp_path)
    refused(2, "the text is too short", model, text, "--window", "400", "-o", tmp_path / "i")
    refused(6, "the window does not fit the context", model, text, "--window", "4000", "-o", tmp_path / "i")
    refused(8, "cannot read the text", model, tmp_path / "none", "-o", tmp_path / "i")
    refused(3, "", text, text, "-o", tmp_path / "i")
    refused(2, "is not one of", model, text, "--backend", "cuda", "-o", tmp_path / "i")
    assert text.read_text() == TEXT and list(tmp_path.iterdir()) == []
    with reflex.load(model, backend="cpu") as opened, pytest.raises(InvalidInputError, match="number of chunks"):
        lab.importance(opened, TEXT, WINDOW, chunks=-1)
    with reflex.load(model, backend="cpu") as opened, pytest.raises(InvalidInputError, match="too short"):
        lab.importance(opened, "Two words", WINDOW)
