"""bench/shapes.py: its files open, have the sizes and formats they promise, and blocks that mean what they should."""

import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize
from kolibri import Kolibri
from llama import Llama
from test_families import Tiny, distance, feed

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import shapes
from reflex.arch import load_spec
from reflex.gguf.reader import open_model
from reflex.tokenizer import load


@pytest.fixture
def small(monkeypatch):
    """Shapes with a vocabulary of 400 tokens and tiles of 101 blocks."""
    for name, value in (("VOCABULARY", 400), ("MERGES", 100), ("TILE", 101), ("PIECE", 20000)):
        monkeypatch.setattr(shapes, name, value)
    monkeypatch.setitem(shapes.SHAPES, "dense", ("qwen3", 8, 256, 512, 2, 1, (), True))
    monkeypatch.setitem(shapes.SHAPES, "mixed", ("qwen3moe", 2, 256, 512, 2, 1, (8, 2, 256), False))
    monkeypatch.setitem(shapes.SHAPES, "windowed", ("kolibri1", 5, 256, 512, 2, 1, (8, 2, 256), False))
    monkeypatch.setitem(shapes.SHAPES, "recurrent", ("qwen35", 4, 256, 512, 4, 2, (), True))
    own = {"tokens": ("qwen35", 400, 100), "mixer": (2, 128, 4, 4)}
    monkeypatch.setitem(shapes.OWN, "qwen35", shapes.OWN["qwen35"] | own)
    own = {"tokens": ("kolibri1", 400, 100), "shared": 256, "window": (9, 5)}
    monkeypatch.setitem(shapes.OWN, "kolibri1", shapes.OWN["kolibri1"] | own)


@pytest.mark.parametrize("name", ["dense", "mixed", "recurrent"])
def test_a_file_computes_what_llama_cpp_computes_of_it(small, tmp_path, name):
    path = tmp_path / "m.gguf"
    vocabulary = shapes.made_up(shapes.SHAPES[name][0])
    assert shapes.write(name, str(path), vocabulary, 3) == path.stat().st_size
    model, ids = Tiny(path), [5, 300, 17, 9]
    oracle = Llama(path)
    logits = oracle.logits(ids)
    oracle.close()
    assert distance(feed(model.plan(), ids), logits) < 0.3  # llama.cpp rounds activations to eight bits
    tokenizer = load(model.file)
    assert tokenizer.decode(tokenizer.encode("Hello, world")) == b"Hello, world"
    model.file.close()


def test_a_file_computes_what_the_description_says(small, tmp_path):
    """Kolibri 1, which llama.cpp does not know."""
    path = tmp_path / "m.gguf"
    assert shapes.write("windowed", str(path), shapes.made_up("kolibri1"), 2) == path.stat().st_size
    model, ids = Tiny(path), [5, 300, 17, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    oracle = Kolibri(path)
    assert distance(feed(model.plan(), ids), oracle.logits(ids)) < 0.01
    assert len({expert for rows in oracle.chosen for row in rows for expert in row.tolist()}) == 8  # the router chooses
    oracle.close()
    model.file.close()


def test_a_file_that_has_no_room_is_one_line(small, tmp_path, monkeypatch):
    monkeypatch.setattr(shapes.os, "statvfs", lambda path: type("Room", (), {"f_bavail": 1, "f_frsize": 4096}))
    with pytest.raises(SystemExit, match="bytes are needed, 4096 are free"):
        shapes.write("dense", str(tmp_path / "m.gguf"), shapes.made_up(), 1)
    assert not list(tmp_path.iterdir())


def test_blocks_have_the_deviation_asked_for(small, tmp_path):
    path = tmp_path / "m.gguf"
    shapes.write("dense", str(path), shapes.made_up(), 2)
    tensors = {tensor.name: tensor for tensor in GGUFReader(str(path)).tensors}
    formats = [tensors[f"blk.{i}.ffn_down.weight"].tensor_type.name for i in range(8)]
    assert formats == ["Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q6_K"]
    assert tensors["token_embd.weight"].tensor_type.name == "Q6_K"
    for name, inputs in (("blk.0.ffn_down.weight", 512), ("blk.1.ffn_down.weight", 512), ("blk.2.attn_q.weight", 256)):
        x = dequantize(tensors[name].data, tensors[name].tensor_type)
        assert x.std() == pytest.approx(inputs**-0.5, rel=0.03)
        assert abs(x.mean()) < 0.02 * x.std()
    one, other = (dequantize(tensors[f"blk.{i}.attn_q.weight"].data, tensors["blk.1.attn_q.weight"].tensor_type) for i in (1, 2))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "name, gigabytes, parameters",
    [
        ("qwen3-0.6b", 0.391, 0.596e9),
        ("qwen3-8b", 5.03, 8.19e9),
        ("qwen3moe-30b-a3b", 18.6, 30.5e9),
        ("kolibri1-78b", 47.5, 78e9),
        ("qwen35-0.8b", 0.52, 0.753e9),
    ],
)
def test_the_sizes_are_those_of_the_models(name, gigabytes, parameters):
    total = sum(shapes.nbytes(shape, kind) for _, shape, kind in shapes.tensors(name))
    assert total == pytest.approx(gigabytes * 1e9, rel=0.01)
    assert sum(int(np.prod(shape, dtype=np.int64)) for _, shape, _ in shapes.tensors(name)) == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_every_shape_is_a_model_that_this_engine_runs(monkeypatch, tmp_path, name):
    """The header alone, with a hole where the weights would be."""
    kind, size, _ = shapes.tokens_of(shapes.SHAPES[name][0])
    vocabulary = {"pre": kind, "tokens": ["a"] * size, "types": [1] * size, "merges": ["a a"]}
    header, _, total = shapes.plan(name, vocabulary)
    with open(tmp_path / "m.gguf", "wb") as file:
        file.write(header)
        file.truncate(total)
    file = open_model(str(tmp_path / "m.gguf"))
    assert len(load_spec(file).layers) == shapes.SHAPES[name][1]
    file.close()
