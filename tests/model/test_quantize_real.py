"""A real model quantized by a mixed recipe: every tensor has the type and the bytes that llama.cpp's own quantizer made of it."""

import hashlib
import json
from pathlib import Path

from real import locate

from reflex.gguf.reader import open_model
from reflex.native import bytes_at
from reflex.quant.types import by_id
from reflex.tools import quantize

RECORD = json.loads((Path(__file__).parents[1] / "recorded_recipes.json").read_text())["real"]


def copy(source, target, recipe):
    file = open_model(str(source))
    quantize.write(file, str(target), recipe, quantize.plan(file, recipe))
    file.close()


def test_types_and_bytes_are_llama_cpps(tmp_path):
    ((recipe, wanted),) = RECORD.items()
    copy(locate("smollm2"), tmp_path / "f16.gguf", "F16")
    copy(tmp_path / "f16.gguf", tmp_path / "out.gguf", recipe)
    file = open_model(str(tmp_path / "out.gguf"))
    assert set(file.tensors) == set(wanted)
    found = {t.name: [by_id(t.type).name, hashlib.sha256(bytes_at(t.address, t.nbytes)).hexdigest()] for t in file.tensors.values()}
    file.close()
    assert {name: (found[name], wanted[name]) for name in wanted if found[name] != wanted[name]} == {}
    assert {kind for kind, _ in wanted.values()} >= {"Q4_K", "Q6_K", "Q5_0", "Q8_0", "F32"}
