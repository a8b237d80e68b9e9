"""A real model quantized by a mixed recipe: every tensor has the type and the bytes that llama.cpp's own quantizer made of it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from real import locate
from record_recipes import importance_of

from reflex.gguf.reader import open_model
from reflex.lab.imatrix import Importance
from reflex.native import bytes_at
from reflex.quant.types import by_id
from reflex.tools import quantize

RECORD = json.loads((Path(__file__).parents[1] / "recorded_recipes.json").read_text())
KINDS = {"real": {"Q4_K", "Q6_K", "Q5_0", "Q8_0", "F32"}, "weighted": {"IQ1_S", "Q2_K", "IQ4_NL", "F32"}}  # at least


def copy(source, target, recipe, weighted=False):
    file, importance = open_model(str(source)), None
    if weighted:
        made = importance_of({tensor.name: tensor.shape for tensor in file.tensors.values()})
        importance = Importance("made here", {name: (means[None], np.ones(1, "f4")) for name, means in made.items()})
    quantize.write(file, str(target), recipe, quantize.plan(file, recipe, importance=importance))
    file.close()


@pytest.mark.parametrize("which", KINDS)
def test_types_and_bytes_are_llama_cpps(tmp_path, which):
    ((recipe, wanted),) = RECORD[which].items()
    copy(locate("smollm2"), tmp_path / "f16.gguf", "F16")
    copy(tmp_path / "f16.gguf", tmp_path / "out.gguf", recipe, which == "weighted")
    file = open_model(str(tmp_path / "out.gguf"))
    assert set(file.tensors) == set(wanted)
    found = {t.name: [by_id(t.type).name, hashlib.sha256(bytes_at(t.address, t.nbytes)).hexdigest()] for t in file.tensors.values()}
    file.close()
    assert {name: (found[name], wanted[name]) for name in wanted if found[name] != wanted[name]} == {}
    assert {kind for kind, _ in wanted.values()} >= KINDS[which]
