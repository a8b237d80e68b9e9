"""Models that are wrong in what they say, not in how they are written: each is refused with the fact that helps, or its numbers
are defined: sizes beyond 64 bits, negative counts, scalings without meaning, routers without numbers."""

import struct

import numpy as np
import pytest
import tiny
from changes import Entry

import reflex
from reflex import native
from reflex.errors import InternalError, ModelFileError, OutOfMemoryError, ReflexError, UnsupportedError
from reflex.open import open_model

U32, F32, STRING, U64, I64, F64 = 4, 6, 8, 10, 11, 12
CODES = {U32: "I", F32: "f", U64: "Q", I64: "q", F64: "d"}
IDS = [3 + 7 * i % 250 for i in range(9)]


@pytest.fixture
def changed(files, tmp_path):
    """changed(name, {key: (type, value)}, tensors=[...]) -> the path of that model with these keys, and tensors added."""

    def write(name, keys=(), tensors=()):
        tree = files(name)
        architecture = tiny.MODELS[name][0]
        for key, (kind, value) in dict(keys).items():
            full = (key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}").encode()
            data = len(value).to_bytes(8, "little") + value if kind == STRING else struct.pack("<" + CODES[kind], value)
            tree.keys = [entry for entry in tree.keys if entry.name != full] + [Entry(full, kind, data)]
        tree.tensors += [list(tensor) for tensor in tensors]
        path = tmp_path / "m.gguf"
        path.write_bytes(tree.bytes())
        return str(path)

    return write


def refusal(path, kind=ModelFileError, **more):
    with pytest.raises(kind) as caught:
        open_model(path, backend="cpu", threads=1, **more)
    assert "\n" not in str(caught.value) and str(caught.value).isprintable()
    return str(caught.value)


# ---- keys --------------------------------------------------------------------------------------------------

BAD = {  # name: (model, keys, words)
    "more layers than blocks": ("llama", {"nextn_predict_layers": (I64, -(1 << 63))}, ("nextn_predict_layers", "from 0 to")),
    "no layers": ("llama", {"nextn_predict_layers": (U32, 1 << 31)}, ("nextn_predict_layers", str(1 << 31))),
    "a window beyond all positions": ("gemma3", {"attention.sliding_window": (U64, 1 << 63)}, ("sliding_window", str(1 << 63))),
    "a context beyond all positions": ("llama", {"context_length": (U64, 1 << 63)}, ("context_length", str(1 << 63))),
    "a stretch without end": ("hunyuan-dense", {"rope.scaling.alpha": (F64, 1e300)}, ("rope.scaling.alpha", "1e+300")),
    "a stretch to nothing": ("hunyuan-dense", {"rope.scaling.alpha": (F64, 5e-324)}, ("rope.scaling.alpha",)),
    "a scaling that is no number": ("llama", {"rope.scaling.factor": (F32, float("nan"))}, ("rope.scaling.factor", "nan")),
    "angles that no kernel can turn": ("llama", {"rope.scaling.factor": (F64, 1e-300)}, ("frequencies", "1e-300")),
    "a magnitude beyond floats": ("llama", {"rope.scaling.attn_factor": (F64, 1e300)}, ("magnitude", "1e+300")),
    "more experts used than there are": ("qwen3moe", {"expert_used_count": (U32, 1 << 20)}, ("expert_used_count", str(1 << 20))),
    "no experts used": ("qwen3moe", {"expert_used_count": (U32, 0)}, ("expert_used_count", "found 0")),
    "more experts than the stack": ("qwen3moe", {"expert_count": (U32, 9999)}, ("9999", "found [")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_sizes_without_meaning(changed, name):
    model, keys, words = BAD[name]
    line = refusal(changed(model, keys))
    assert all(word in line for word in words), line


def test_names_cannot_write_to_the_terminal_nor_fill_it(changed):
    line = refusal(changed("llama", {"general.type": (STRING, b"\x1b[31mred\x07" + b"x" * 100_000)}), UnsupportedError)
    assert "\\x1b[31mred\\x07" in line and len(line) < 2000
    line = refusal(changed("llama", {"rope.scaling.type": (STRING, b"\x1b]0;title\x07")}), UnsupportedError)
    assert "\\x1b]0;title" in line


def test_placeholders_without_numbers_load(changed):
    path = changed("llama", tensors=[(b"blk.0.placeholder.weight", [4, 0], 0, 0), (b"vision.weight", [0], 8, 0)])
    file, _, session = open_model(path, backend="cpu", threads=1)
    assert file.tensor("vision.weight").nbytes == 0
    session.plan.close()
    file.close()
    assert "vision.weight" in refusal(changed("llama", tensors=[(b"vision.weight", [1], 0, 0)]), ReflexError)


def test_fewer_learned_positions_than_the_context_promises(changed):
    line = refusal(changed("gpt2", {"context_length": (U32, 2048)}))
    assert "position_embd.weight" in line and "2048" in line and "1024" in line


def test_buffers_beyond_what_can_be_addressed():
    for size in ((1 << 64) + 4096, 1 << 63, (1 << 47) + 1, 1 << 90):
        with pytest.raises(OutOfMemoryError, match=str((size + 4095) & -4096)):
            native.alloc(size, "cache")


def test_a_window_of_one_token_sees_itself(changed):
    path = changed("gemma3", {"attention.sliding_window": (U32, 1)})
    found = []
    for backend in ("cpu", "reference"):
        with reflex.load(path, backend=backend, context=16, threads=1) as model:
            found.append(np.array(model.logits(IDS)))
    np.testing.assert_allclose(*found, rtol=0, atol=0.01 * found[1].std())


# ---- weights -----------------------------------------------------------------------------------------------


def spoiled(tree, name, value):
    """The file's bytes with all numbers of a float32 tensor set to `value`."""
    data = bytearray(tree.data)
    _, dims, kind, offset = next(t for t in tree.tensors if t[0] == name)
    count = int(np.prod(dims))
    assert kind == 0
    data[offset : offset + 4 * count] = struct.pack("<f", value) * count
    tree.data = bytes(data)
    return tree.bytes()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "deepseek"])
def test_a_router_without_numbers_is_an_error_not_an_index(files, tmp_path, name, value, backend):
    """Experts chosen among what is no number are still experts of the stack; what follows has no numbers, and that is said."""
    tree = files(name)
    router = next(t[0] for t in tree.tensors if t[0].endswith(b"ffn_gate_inp.weight"))
    path = tmp_path / "m.gguf"
    path.write_bytes(spoiled(tree, router, value))
    with reflex.load(str(path), backend=backend, context=32, threads=1) as model:
        assert not np.isfinite(np.array(model.logits(IDS))).all()
        with pytest.raises(InternalError, match="not finite"):
            model.system1("the quick", [" fox", " dog"])
        with pytest.raises(InternalError, match="not"):
            model.generate("the quick", max_tokens=2)


def test_the_weight_of_an_expert_does_not_pass_through_its_bias():
    from reflex.ops import route

    logits, bias = np.float32([[np.log(1e-8), -30, -30, -30]]), np.float32([12, 0, 0, 0])
    out = route.reference(logits, bias, used=1, gating="sigmoid", renormalize=False, scale=1.0)
    assert out[0, 1] == 0 and abs(out[0, 0] / 1e-8 - 1) < 1e-5


@pytest.mark.parametrize("value", [2.0, -1e30, 1e30])
def test_sinks_of_any_size_only_take_part_in_the_sum(files, tmp_path, value):
    """A sink of 1e30 takes all of the attention, one of -1e30 takes nothing; neither makes anything else than a number."""
    found = {}
    for name, sink in (("given", value), ("far", -1e20)):
        tree = files("gpt-oss")
        for tensor in [t[0] for t in tree.tensors if t[0].endswith(b"attn_sinks.weight")]:
            (tmp_path / f"{name}.gguf").write_bytes(spoiled(tree, tensor, sink))
        for backend in ("cpu", "reference"):
            with reflex.load(str(tmp_path / f"{name}.gguf"), backend=backend, context=16, threads=1) as model:
                found[name, backend] = np.array(model.logits(IDS))
    for name in ("given", "far"):
        assert np.isfinite(found[name, "cpu"]).all()
        np.testing.assert_allclose(found[name, "cpu"], found[name, "reference"], rtol=0, atol=0.02 * found[name, "reference"].std())
    same = np.array_equal(found["given", "cpu"], found["far", "cpu"])
    assert same == (value == -1e30)
