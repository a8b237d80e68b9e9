"""The table of ggml types against the two public packages that have one, and its refusals."""

import subprocess
import sys
from pathlib import Path

import libgguf
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from reflex import quant
from reflex.errors import ModelFileError, UnsupportedError
from reflex.quant.types import TYPES, by_id, by_name, row_bytes

ROOT = Path(__file__).resolve().parents[2]


def test_every_id_gguf_knows_is_here_under_its_name():
    assert {t.value: t.name for t in GGMLQuantizationType} == {b.id: b.name for b in TYPES.values()}
    assert all(key == block.id for key, block in TYPES.items())


@pytest.mark.parametrize("block", TYPES.values(), ids=lambda b: b.name)
def test_geometry(block):
    elements, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType(block.id)]
    assert block.elements == elements
    assert block.nbytes == libgguf.type_size(block.id)  # ggml itself
    if block.name != "Q8_1":  # where gguf still has the two single-precision scales of an older ggml
        assert block.nbytes == nbytes


@pytest.mark.parametrize("block", TYPES.values(), ids=lambda b: b.name)
def test_every_type_has_a_format_file(block):
    module = quant.load(block.name)
    assert module.__name__ == f"reflex.quant.{block.name.lower()}"
    assert callable(module.decode) and callable(module.unpack)
    assert quant.load(block.name.lower()) is module


def test_row_bytes():
    assert row_bytes(by_name("F32").id, 5) == 20
    assert row_bytes(by_name("Q4_K").id, 512) == 288
    assert row_bytes(by_name("q8_0").id, 0) == 0


@pytest.mark.parametrize("columns", [1, 255, 257, -256])
def test_partial_rows_are_refused(columns):
    with pytest.raises(ModelFileError) as caught:
        row_bytes(by_name("Q6_K").id, columns, "tensor x")
    assert caught.value.found == columns
    assert "256" in caught.value.expected and caught.value.where == "tensor x"


@pytest.mark.parametrize("number", [4, 5, 31, 36, 99, -1])
def test_unknown_ids_are_refused_with_their_number(number):
    with pytest.raises(UnsupportedError, match=f"type {number}\\b"):
        by_id(number)
    with pytest.raises(UnsupportedError, match=f"type {number}\\b"):
        row_bytes(number, 256)


@pytest.mark.parametrize("name", ["Q4K", "fields", "types", "", "../q4_0"])
def test_unknown_names_are_refused(name):
    with pytest.raises(UnsupportedError):
        quant.load(name)
    with pytest.raises(UnsupportedError):
        quant.decode(name, b"")


def test_the_closest_names_are_offered():
    with pytest.raises(UnsupportedError, match="Q4_K"):
        by_name("Q4K")


def test_decode_refuses_a_partial_block():
    with pytest.raises(ModelFileError, match="multiple of 18 bytes"):
        quant.decode("Q4_0", bytes(17))


def test_import_brings_no_foreign_module():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); import reflex.quant.types\n"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('reflex')))"
    )
    found = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
