"""From files to specs: the registry, refusals with key, expected and found, and cross-checks of keys against tensors."""

import shutil
import struct
from itertools import combinations
from pathlib import Path

import pytest
import tiny_gemma
from changed_models import write_changed
from tiny import MODELS, Model, write

from reflex import arch
from reflex.arch import load_spec, spec
from reflex.errors import InternalError, ModelFileError, UnsupportedError
from reflex.gguf.reader import open_model
from reflex.native import bytes_at

# ---- registry ----------------------------------------------------------------------------------------------


def test_families_are_the_files_of_the_folder():
    assert {"gemma3", "llama", "qwen2", "qwen3"} <= set(arch.families())
    for name in arch.families():
        module = arch.find(name)
        assert isinstance(module.FAMILY, spec.Family)
        assert set(module.TINY) >= {"width", "layers", "heads", "kv_heads", "head_dim", "feed_forward", "tokenizer"}
        assert len(Path(module.__file__).read_text().splitlines()) < 50, "a family is data"


def test_no_two_families_share_more_than_half_their_lines():
    everywhere = {"", "from .spec import Family"}
    lines = {name: set(Path(arch.find(name).__file__).read_text().split("\n")) - everywhere for name in arch.families()}
    for a, b in combinations(lines, 2):
        assert len(lines[a] & lines[b]) <= min(len(lines[a]), len(lines[b])) / 2, (a, b)


def test_unknown_architecture_names_the_closest(refused):
    message = refused(UnsupportedError, architecture="lama4")
    assert "'lama4'" in message
    assert "nearest: llama" in message


@pytest.mark.parametrize(
    "name", ["", "spec", "../llama", "llama.spec", "Llama", "_x", "names", "__init__", "a" * 5000, "ll\u00e4ma\n"]
)
def test_names_that_are_no_family_are_refused(name):
    with pytest.raises(UnsupportedError) as caught:
        arch.find(name)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_a_record_with_an_unknown_field_is_refused():
    with pytest.raises(InternalError, match="window_size"):
        spec.Family(window_size=3)


# ---- keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, value, expected",
    [
        ("llama.attention.clamp_kqv", 8.0, "0.0"),
        ("llama.attention.causal", False, "True"),
        ("llama.logit_scale", 8.0, "1"),
        ("llama.attention.scale", 0.1, "0"),
        ("llama.attention.temperature_scale", 0.1, "0"),
        ("llama.rope.scaling.type", "dynamic", "none or linear or yarn or longrope"),
        ("llama.rope.dimension_sections", [4, 4, 2, 2], "three sections"),
        ("general.type", "adapter", "model"),
    ],
)
def test_unimplemented_variants_name_key_expected_and_found(refused, key, value, expected):
    message = refused(UnsupportedError, keys={key: value})
    assert key in message
    assert f"expected {expected}" in message or f"expected general.type {expected}" in message
    assert str(value) in message


def test_neutral_values_of_such_keys_are_accepted(tmp_path):
    neutral = {"llama.expert_count": 0, "llama.logit_scale": 1.0, "llama.attention.causal": True, "general.type": "model"}
    file = open_model(write_changed(tmp_path / "m.gguf", keys=neutral))
    assert len(load_spec(file).layers) == Model("llama").layers
    file.close()


@pytest.mark.parametrize(
    "key, value",
    [
        ("llama.block_count", 0),
        ("llama.block_count", 1 << 20),
        ("llama.embedding_length", 0),
        ("llama.context_length", 0),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 3),
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.head_count_kv", 3),
        ("llama.attention.head_count_kv", 8),
        ("llama.feed_forward_length", 0),
        ("llama.attention.key_length", 0),
        ("llama.attention.layer_norm_rms_epsilon", 0.0),
        ("llama.attention.layer_norm_rms_epsilon", -1.0),
        ("llama.rope.dimension_count", 0),
        ("llama.rope.dimension_count", 7),
        ("llama.rope.dimension_count", 26),
        ("llama.rope.freq_base", 0.0),
        ("llama.rope.scaling.factor", -2.0),
        ("llama.nextn_predict_layers", 3),
        ("llama.attention.head_count", [4, 4]),
        ("llama.attention.head_count", "4"),
        ("llama.attention.head_count", 4.0),
        ("llama.feed_forward_length", True),
        ("llama.block_count", None),
        ("llama.attention.layer_norm_rms_epsilon", None),
    ],
)
def test_impossible_or_missing_values_name_their_key(refused, key, value):
    message = refused(keys={key: value})
    assert key.removesuffix("factor").rstrip(".") in message or "block_count" in message


@pytest.mark.parametrize("count", [31, 33, 40])
def test_a_number_of_layers_that_stands_for_other_mathematics(refused, count):
    message = refused(UnsupportedError, name="baichuan", keys={"baichuan.block_count": count})
    assert "architecture baichuan" in message
    assert f"expected 32 layers; found {count}" in message
    assert "baichuan.block_count" in message


def test_a_scale_that_the_family_needs_is_not_guessed(refused):
    assert "minicpm.logit_scale" in refused(name="minicpm", keys={"minicpm.logit_scale": None})


# ---- tensors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensor", ["token_embd.weight", "output_norm.weight", "blk.2.attn_k.weight", "blk.0.ffn_norm.weight"])
def test_missing_tensor(refused, tensor):
    message = refused(tensors={tensor: None})
    assert "missing" in message
    assert tensor in message


@pytest.mark.parametrize(
    "tensor, shape, expected",
    [
        ("blk.1.attn_q.weight", (95, 64), "[64, 96]"),
        ("blk.1.attn_v.weight", (48, 63), "[64, 48]"),
        ("blk.2.attn_output.weight", (64, 95), "[96, 64]"),
        ("blk.0.attn_norm.weight", (63,), "[64]"),
        ("blk.0.attn_q.bias", (95,), "[96]"),
        ("token_embd.weight", (511, 64), "[64, 512]"),
        ("output.weight", (513, 64), "[64, 512]"),
        ("rope_freqs.weight", (11,), "[12]"),
    ],
)
def test_wrong_shape(refused, tensor, shape, expected):
    message = refused(tensors={tensor: shape})
    assert tensor in message
    assert f"expected {expected}" in message
    assert f"found {list(reversed(shape))}" in message


def test_metadata_that_contradicts_the_tensors(refused):
    assert "blk.0.attn_q.weight" in refused(keys={"llama.attention.key_length": 32})
    assert "blk.0.attn_k.weight" in refused(keys={"llama.attention.head_count_kv": 1})
    assert "blk.0.ffn_gate.weight" in refused(keys={"llama.feed_forward_length": 128})
    assert "blk.3.attn_norm.weight" in refused(keys={"llama.block_count": 4})


@pytest.mark.parametrize(
    "name, tensor, shape",
    [
        ("llama", "blk.2.attn_sinks.weight", (4,)),
        ("llama", "blk.1.attn_norm.bias", (64,)),
        ("llama", "rope_factors_long.weight", (12,)),  # without scaling type longrope nobody reads it
        ("qwen3", "rope_freqs.weight", (16,)),
        ("qwen2", "position_embd.weight", (1024, 64)),
    ],
)
def test_a_tensor_that_nobody_reads_is_refused(refused, name, tensor, shape):
    assert tensor in refused(UnsupportedError, name=name, tensors={tensor: shape})


BIASES = {"qkv": ("attn_q", "attn_qkv"), "attn_output": ("attn_output",), "ffn": ("ffn_up", "ffn_down"), "output": ("output",)}


@pytest.mark.parametrize("name", arch.families())
def test_a_bias_that_the_record_does_not_name_is_refused(refused, name):
    shapes = dict(Model(name).shapes())
    for group in set(BIASES).difference(arch.find(name).FAMILY.biases):
        for tensor, shape in list(shapes.items()):
            role = tensor.removesuffix(".weight").rpartition(".")[2]
            if tensor.endswith(".weight") and role in BIASES[group]:
                bias = tensor.replace(".weight", ".bias")
                assert bias in refused(UnsupportedError, name=name, tensors={bias: shape[:1]})
                break


@pytest.mark.parametrize("name", arch.families())
def test_an_output_matrix_is_there_where_the_record_says_so(refused, tmp_path, name):
    rule = arch.find(name).FAMILY.output
    if rule == "tied":
        assert "output.weight" in refused(UnsupportedError, name=name, tensors={"output.weight": (512, 64)})
    elif rule == "required":
        assert "output.weight" in refused(name=name, tensors={"output.weight": None})
    else:
        for shape in (None, (512, 64)):
            file = open_model(write_changed(tmp_path / "m.gguf", name=name, tensors={"output.weight": shape}))
            assert load_spec(file).output.weight == ("output.weight" if shape else "token_embd.weight")
            file.close()


@pytest.mark.parametrize("name", ["deepseek2", "kimi-linear"])
def test_sizes_of_latent_attention_are_those_of_its_tensors(refused, tmp_path, name):
    """All but value_length, which nothing of a file with sizes of a head needs: Kimi Linear's says what nothing has."""
    keys = [key for key in Model(name).metadata() if "_length_mla" in key or key.endswith("kv_lora_rank")]
    assert len(keys) == 3
    for key in (*keys, f"{name}.attention.key_length"):
        message = refused(name=name, keys={key: Model(name).metadata()[key] + 2})
        assert "sizes of latent attention disagree" in message or "blk." in message
    file = open_model(write_changed(tmp_path / "m.gguf", name=name, keys={f"{name}.attention.value_length": 7}))
    assert load_spec(file).layers[-1].value_dim == Model(name).latent[2]
    file.close()


def test_a_matrix_in_the_place_of_attention_has_no_bias(refused):
    """llama.cpp loads it and leaves it out."""
    assert "blk.3.attn_output.bias" in refused(UnsupportedError, name="deci", tensors={"blk.3.attn_output.bias": (64,)})


def test_fewer_layers_than_tensors_is_refused_but_draft_layers_are_skipped(tmp_path, refused):
    assert "blk.2." in refused(UnsupportedError, keys={"llama.block_count": 2})
    file = open_model(write_changed(tmp_path / "m.gguf", keys={"llama.nextn_predict_layers": 1}))
    assert len(load_spec(file).layers) == 2
    file.close()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_unusable_rotary_factors(tmp_path, bad):
    path = write("llama-factors", tmp_path / "m.gguf")
    file = open_model(str(path))
    pattern = bytes_at(file.tensors["rope_freqs.weight"].address, 48)
    file.close()
    data = path.read_bytes()
    assert data.count(pattern) == 1
    path.write_bytes(data.replace(pattern, struct.pack("<f", bad) + pattern[4:]))
    file = open_model(str(path))
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight"):
        load_spec(file)
    file.close()


# ---- what a spec says --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_spec_prints_its_sizes(tmp_path, name):
    model = Model(name)
    file = open_model(str(write(name, tmp_path / "m.gguf")))
    text = str(load_spec(file))
    skipped = [i for i in range(model.layers) if not model.at("feed_forward_length", model.feed_forward, i)]
    running = model.layers - len(skipped if model.family.missing_parts else ())
    heads = f"heads {model.heads}/{model.kv_heads} of {tiny_gemma.head_dim(model, 0)}"
    assert text.startswith(f"{model.architecture}: {running} layers, width 64, {heads}")
    file.close()


def windows(tmp_path, name, **changes):
    shutil.rmtree(tmp_path / "w", ignore_errors=True)
    (tmp_path / "w").mkdir()
    file = open_model(str(write(name, tmp_path / "w" / "m.gguf", **changes)))
    result = [(layer.window, layer.rope) for layer in load_spec(file).layers]
    file.close()
    return result


def test_window_patterns(tmp_path):
    near, far = (16, 0), (0, 1)
    assert windows(tmp_path, "gemma3") == [near] * 5 + [far, near]
    assert windows(tmp_path, "gemma3-every-3") == [near, near, far] * 2 + [near]
    assert windows(tmp_path, "gemma3-pattern") == [near, far, near, near, far, near, far]
    assert windows(tmp_path, "gemma3-no-window") == [(0, 0)] * 7
    assert windows(tmp_path, "gemma2") == [near, far] * 2
    assert windows(tmp_path, "exaone4-64-layers") == [near, near, near, (0, None)] * 16
    assert windows(tmp_path, "exaone4") == [(0, 0)] * 3  # not 64 layers
    assert windows(tmp_path, "qwen2") == [(0, 0)] * 3  # the key is in the file, the family has no use for it


@pytest.mark.parametrize("name", ["gemma2", "exaone4-64-layers"])
def test_a_file_without_the_window_key_has_the_window_of_its_family(tmp_path, name):
    key = f"{Model(name).architecture}.attention.sliding_window"
    file = open_model(write_changed(tmp_path / "m.gguf", name=name, keys={key: None}))
    assert {layer.window for layer in load_spec(file).layers} == {4096, 0}
    file.close()


def test_soft_caps_without_keys_are_those_of_the_family(tmp_path):
    absent = {"gemma2.attn_logit_softcapping": None, "gemma2.final_logit_softcapping": None}
    file = open_model(write_changed(tmp_path / "m.gguf", name="gemma2", keys=absent))
    loaded = load_spec(file)
    assert (loaded.attn_softcap, loaded.final_softcap) == (50.0, 30.0)
    file.close()
