"""Tensors of another type in memory: what is computed is, bit for bit, what a file that was written with them gives."""

import os
import threading

import numpy as np
import pytest
from rewrite import in_type, rewrite
from tiny import write

import reflex
from reflex.errors import InvalidInputError, ModelFileError, StateError, UnsupportedError
from reflex.gguf.reader import open_model
from reflex.gguf.writer import header
from reflex.lab.overlay import Overlay
from reflex.native import bytes_at

TEXT = "The quick brown fox jumps over a lazy dog while other animals sing."
WIDE = {"width": 256, "feed_forward": 256, "layers": 2}  # rows of whole blocks of 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write("llama-smollm", folder / "plain.gguf")
    write("llama", folder / "wide.gguf", **WIDE)
    write("llama-untied", folder / "quantized.gguf", kind="Q8_0")
    write("olmoe", folder / "experts.gguf")
    return folder


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    return request.param


def logits(model):
    return model.logits(TEXT, every=True)


def contents(model):
    return {name: (tensor.type, bytes_at(tensor.address, tensor.nbytes)) for name, tensor in model.file.tensors.items()}


SWAPS = {  # file, {name or pattern: type}, the pattern of what a file on disk has changed alike
    "a matrix": ("plain", {"blk.1.ffn_up.weight": "Q4_0"}, "blk.1.ffn_up"),
    "a kind": ("plain", {"attn_q": "Q5_1"}, r"attn_q\."),
    "a layer": ("plain", {r"blk\.0\.": "Q8_0"}, r"blk\.0\.(attn_(q|k|v|output)|ffn_(gate|up|down))\."),
    "the embedding, which is the output matrix too": ("plain", {"token_embd": "Q8_0"}, "token_embd"),
    "a table of values": ("plain", {"ffn_gate": "IQ4_NL"}, "ffn_gate"),
    "powers of two": ("plain", {"attn_v": "MXFP4"}, "attn_v"),
    "brain floats": ("plain", {"attn_v": "BF16"}, "attn_v"),
    "half floats": ("plain", {"ffn_down": "F16"}, "ffn_down"),
    "a norm, by its name": ("plain", {"blk.0.attn_norm.weight": "F16"}, "blk.0.attn_norm"),
    "blocks of 256": ("wide", {"ffn": "Q4_K"}, "ffn_(gate|up|down)"),
    "two bits": ("wide", {"attn_k.weight": "Q2_K"}, "attn_k.weight"),
    "what is quantized already": ("quantized", {"ffn_gate": "Q4_1"}, "ffn_gate"),
    "back to floats": ("quantized", {"output.weight": "F32"}, "^output.weight"),
    "experts": ("experts", {"ffn_down_exps": "Q4_0"}, "ffn_down_exps"),
}


@pytest.mark.parametrize("case", SWAPS)
def test_in_memory_is_as_on_disk(folder, tmp_path, backend, case):
    name, types, part = SWAPS[case]
    kind = next(iter(types.values()))
    on_disk = rewrite(folder / f"{name}.gguf", tmp_path / "other.gguf", in_type(kind, part))
    with (
        reflex.load(folder / f"{name}.gguf", backend=backend) as model,
        reflex.load(on_disk, backend=backend) as other,
        model.with_types(types) as changed,
    ):
        assert contents(changed) == contents(other)
        found = logits(changed)
        assert np.array_equal(found, logits(other))
        assert np.array_equal(found, logits(model)) == (kind == "F32" and backend == "reference")  # which loses nothing
        assert (changed.backend, changed.path, changed.context) == (model.backend, model.path, model.context)


def test_its_own_type_changes_nothing(folder, backend):
    with reflex.load(folder / "quantized.gguf", backend=backend) as model:
        with model.with_types({".": "Q8_0"}) as same:
            assert same.file.overlaid == () and np.array_equal(logits(same), logits(model))
        with model.with_types({"ffn": "Q8_0", "ffn_up": "Q4_0"}) as one:
            assert {name.split(".")[2] for name in one.file.overlaid} == {"ffn_up"}
        with model.with_types({}) as same:
            assert np.array_equal(logits(same), logits(model))


def test_changes_upon_changes(folder, tmp_path):
    on_disk = rewrite(folder / "plain.gguf", tmp_path / "one.gguf", in_type("Q4_0", "attn_v"))
    on_disk = rewrite(on_disk, tmp_path / "both.gguf", in_type("Q8_0", "ffn_up"))
    on_disk = rewrite(on_disk, tmp_path / "again.gguf", in_type("Q8_0", "blk.0.attn_v"))
    with (
        reflex.load(folder / "plain.gguf") as model,
        reflex.load(on_disk) as other,
        model.with_types({"attn_v": "Q4_0"}) as one,
        one.with_types({"ffn_up": "Q8_0", r"blk\.0\.attn_v": "Q8_0"}) as both,
    ):
        one.close()  # neither needs the other
        assert np.array_equal(logits(both), logits(other))
        assert len(both.file.overlaid) == 6


def test_neither_needs_the_other(folder):
    model = reflex.load(folder / "plain.gguf")
    changed = model.with_types({"ffn": "Q4_0"})
    before = logits(changed)
    model.close()
    assert np.array_equal(logits(changed), before)
    assert changed.system1("The quick", [" brown", " fox"]).candidates[0].sum < 0 and changed.generate("The", max_tokens=3)
    assert np.isfinite(changed.trace(TEXT, taps="logits")["logits"]).all()
    changed.close()
    with pytest.raises(StateError):
        model.with_types({"ffn": "Q4_0"})


def test_nothing_is_left_open(folder):
    with reflex.load(folder / "plain.gguf") as model:
        before = sorted(os.listdir("/proc/self/fd")), threading.active_count()
        for _ in range(3):
            model.with_types({"ffn": "Q4_0"}).close()
        with pytest.raises(InvalidInputError):
            model.with_types({"ffn": "Q2_K"})
        assert (sorted(os.listdir("/proc/self/fd")), threading.active_count()) == before
        with open("/proc/self/maps") as maps:
            assert "reflex tensors" not in maps.read()


def test_importance_reaches_the_encoder(folder):
    columns = 256
    weights = np.where(np.arange(columns) < 16, 1000.0, 0.001).astype(np.float32)
    name = "blk.0.attn_q.weight"
    with reflex.load(folder / "wide.gguf") as model:
        before = values(model, name)
        errors = []
        for importance in (None, {name: weights}):
            with model.with_types({name: "Q4_0"}, importance) as changed:
                errors.append(np.square(values(changed, name) - before)[:, :16].mean())
        assert errors[1] < 0.9 * errors[0]
        with pytest.raises(InvalidInputError, match="another tensor"):
            model.with_types({name: "Q4_0"}, {name: weights[:-1]})


def test_importance_of_each_expert(folder):
    name = "blk.0.ffn_down_exps.weight"
    with reflex.load(folder / "experts.gguf") as model:
        columns, _, experts = model.file.tensors[name].shape
        one = np.linspace(1, 100, columns, dtype=np.float32)
        every = np.stack([one] + [np.ones(columns, np.float32)] * (experts - 1))
        found = []
        for importance in (None, one, every, np.ones(columns)):
            with model.with_types({name: "Q4_0"}, importance is not None and {name: importance}) as changed:
                tensor = changed.file.tensors[name]
                found.append(bytes_at(tensor.address, tensor.nbytes))
        part = len(found[0]) // experts
        assert found[2] == found[1][:part] + found[3][part:] and found[1] != found[3]


def values(model, name):
    from reflex import quant
    from reflex.native import view
    from reflex.quant.types import by_id

    tensor = model.file.tensors[name]
    return quant.decode(by_id(tensor.type).name, view(tensor.address, tensor.nbytes)).reshape(tensor.shape[::-1])


REFUSED = {
    "nothing of this name": ({"ffn_upp": "Q4_0"}, InvalidInputError, "no tensor is meant.*ffn_up"),
    "vectors, by a pattern": ({"attn_norm": "F16"}, InvalidInputError, "no tensor is meant"),
    "no regular expression": ({"ffn_(": "Q4_0"}, InvalidInputError, "neither a tensor nor a regular expression"),
    "no type": ({"ffn_up": "Q4_5"}, UnsupportedError, "unknown quantization type"),
    "blocks that do not fit": ({"ffn_up": "Q2_K"}, InvalidInputError, "a multiple of 256 values; found 64; at blk.0.ffn_up.weight"),
    "a type that nothing encodes": ({"ffn_up": "Q8_1"}, UnsupportedError, "Q8_1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(folder, case):
    types, error, words = REFUSED[case]
    with reflex.load(folder / "plain.gguf") as model, pytest.raises(error, match=words) as caught:
        model.with_types(types)
    assert "\n" not in str(caught.value)


def test_a_file_that_was_replaced_meanwhile(folder, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes((folder / "plain.gguf").read_bytes())
    with reflex.load(path) as model:
        path.unlink()
        path.write_bytes((folder / "plain.gguf").read_bytes())
        with pytest.raises(ModelFileError, match="was replaced or rewritten"):
            model.with_types({"ffn": "Q4_0"})


def test_an_overlay_of_another_shape(folder, tmp_path):
    start, _ = header({}, [("blk.0.ffn_up.weight", 2, (32, 1), 18)], 32)
    path = tmp_path / "overlay.gguf"
    path.write_bytes(start + b"\0" * 18)
    file = open_model(str(folder / "plain.gguf"))
    with pytest.raises(ModelFileError, match="another shape"):
        file.overlay(str(path))
    file.close()


def test_weights_without_values_cannot_be_encoded(folder, tmp_path):
    def spoil(name, values):
        return (values() * np.float32(np.nan), "F32") if name == "blk.0.ffn_up.weight" else None

    path = rewrite(folder / "plain.gguf", tmp_path / "nan.gguf", spoil)
    with reflex.load(path) as model, pytest.raises(InvalidInputError, match="cannot be encoded"):
        model.with_types({"ffn_up": "Q4_0"})


def test_the_class_closes_what_it_made(folder):
    file = open_model(str(folder / "plain.gguf"))
    overlay = Overlay(file, {"ffn_up": "Q4_0"})
    before = overlay.descriptor
    overlay.close()
    overlay.close()
    file.close()
    with pytest.raises(OSError):
        os.fstat(before)
