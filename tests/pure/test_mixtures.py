"""Mixtures of experts: what files may say about them and what is refused, stacks of every layout, and rows by themselves.

That their numbers are right is tested by test_families.py, whose models have them too.
"""

import numpy as np
import pytest
from changed_models import write_changed
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from llama import Llama
from test_families import AGAINST_LLAMA, CONTEXT, Tiny, distance, feed, text
from tiny import Model, add_key, add_tokenizer, values, write

from reflex.arch import load_spec
from reflex.backends.reference import Stack
from reflex.errors import UnsupportedError
from reflex.gguf.reader import open_model
from reflex.inspect import describe, render

# ---- keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, key, value, expected",
    [
        ("qwen3", "expert_count", 8, "expected 0; found 8"),
        ("qwen3moe", "expert_gating_func", 2, "expected 1 (softmax); found 2"),
        ("gpt-oss", "expert_gating_func", 1, "expected 3 (softmax of chosen); found 1"),
        ("glm4moe", "expert_gating_func", 4, "expected 1 (softmax) or 2 (sigmoid) or 3 (softmax of chosen); found 4"),
        ("glm4moe", "expert_gating_func", 0, "found 0"),
        ("dots1", "expert_gating_func", 9, "found 9"),
        ("qwen3moe", "expert_weights_norm", False, "expected True; found False"),
        ("olmoe", "expert_weights_norm", True, "expected False; found True"),
        ("qwen3moe", "expert_weights_scale", 2.5, "expected 1.0; found 2.5"),
        ("minimax-m2", "expert_weights_scale", 0.5, "found 0.5"),
    ],
)
def test_another_routing_than_the_family_has_is_refused(refused, name, key, value, expected):
    architecture = Model(name).architecture
    message = refused(UnsupportedError, name=name, keys={f"{architecture}.{key}": value})
    assert f"{architecture}.{key}" in message
    assert expected in message


@pytest.mark.parametrize(
    "name, key, value",
    [
        ("qwen3moe", "expert_gating_func", 1),
        ("qwen3moe", "expert_weights_norm", True),
        ("qwen3moe", "expert_weights_scale", 1.0),
        ("olmoe", "expert_weights_scale", 0.0),
        ("qwen3moe", "expert_group_count", 1),
        ("qwen3moe", "expert_used_count", [3, 2, 1]),
        ("qwen3moe", "feed_forward_length", 7),  # of dense layers, which it has none of
    ],
)
def test_keys_that_say_what_the_family_does_anyway(tmp_path, name, key, value):
    stated = {f"{name}.expert_feed_forward_length": 32, f"{name}.{key}": value}
    file = open_model(write_changed(tmp_path / "m.gguf", name=name, keys=stated))
    assert all(layer.experts.count == 8 for layer in load_spec(file).layers)
    file.close()


@pytest.mark.parametrize(
    "name, key, value",
    [
        ("qwen3moe", "expert_count", 0),
        ("qwen3moe", "expert_count", None),
        ("qwen3moe", "expert_count", 1 << 20),
        ("llama-experts", "expert_used_count", 0),
        ("qwen3moe", "expert_used_count", 9),
        ("qwen3moe", "expert_used_count", None),
        ("qwen3moe", "expert_used_count", [3, 3]),
        ("qwen3moe", "expert_used_count", [3, 9, 3]),
        ("qwen3moe", "expert_used_count", 2.0),
        ("gpt-oss", "expert_feed_forward_length", 1 << 25),
        ("dots1", "expert_gating_func", None),
        ("dots1", "expert_shared_count", None),
        ("dots1", "expert_shared_count", 0),
        ("ernie4_5-moe", "interleave_moe_layer_step", 0),
        ("bailingmoe2", "expert_group_used_count", 0),
        ("bailingmoe2", "expert_group_used_count", 5),
        ("bailingmoe2", "expert_group_used_count", 1),  # three experts do not fit a group of two
        ("bailingmoe2", "expert_group_used_count", None),
        ("bailingmoe2", "expert_group_count", 3),
        ("bailingmoe2", "expert_group_count", 8),
        ("granitemoe", "expert_shared_feed_forward_length", 1 << 25),
        ("gpt-oss", "attention.sliding_window", None),
    ],
)
def test_numbers_of_experts_that_cannot_be(refused, name, key, value):
    architecture = Model(name).architecture
    message = refused(name=name, keys={f"{architecture}.{key}": value})
    assert f"{architecture}.{key}" in message


@pytest.mark.parametrize(
    "name, key, value, tensor",
    [
        ("qwen3moe", "expert_count", 7, "ffn_gate_inp"),
        ("qwen3moe", "expert_feed_forward_length", 48, "ffn_gate_exps"),
        ("olmoe", "feed_forward_length", 48, "ffn_gate_exps"),
        ("dots1", "expert_shared_count", 3, "ffn_gate_shexp"),
        ("qwen2moe", "expert_shared_feed_forward_length", 40, "ffn_gate_shexp"),
        ("glm4moe", "leading_dense_block_count", 2, "blk.1.ffn_gate.weight"),
        ("glm4moe", "leading_dense_block_count", 0, "blk.0.ffn_gate_inp.weight"),
        ("glm4moe", "feed_forward_length", 95, "blk.0.ffn_gate"),
    ],
)
def test_keys_that_contradict_tensors(refused, name, key, value, tensor):
    assert tensor in refused(name=name, keys={f"{Model(name).architecture}.{key}": value})


# ---- tensors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, tensor, shape",
    [
        ("qwen3moe", "blk.0.ffn_down_exps.scale", (8,)),
        ("qwen3moe", "blk.1.ffn_gate_inp.scale", (64,)),
        ("qwen3moe", "blk.0.exp_probs_b.bias", (8,)),
        ("qwen3moe", "blk.0.ffn_up_shexp.weight", (32, 64)),
        ("qwen3moe", "blk.0.ffn_gate.0.weight", (32, 64)),
        ("qwen3moe", "blk.0.attn_sinks.weight", (4,)),
        ("dots1", "blk.1.ffn_gate_inp_shexp.weight", (64,)),
        ("ernie4_5-moe", "blk.1.ffn_gate_inp.bias", (8,)),
        ("llama-experts", "blk.0.ffn_gate.weight", (48, 64)),
    ],
)
def test_a_tensor_beside_the_experts_that_nobody_reads_is_refused(refused, name, tensor, shape):
    assert tensor in refused(UnsupportedError, name=name, tensors={tensor: shape})


@pytest.mark.parametrize(
    "name, tensor, shape",
    [
        ("qwen3moe", "blk.0.ffn_down_exps.weight", (8, 64, 31)),
        ("qwen3moe", "blk.0.ffn_up_exps.weight", (7, 32, 64)),
        ("qwen3moe", "blk.0.ffn_up_exps.weight", None),
        ("qwen3moe", "blk.2.ffn_gate_inp.weight", (8, 63)),
        ("gpt-oss", "blk.0.ffn_gate_exps.bias", (8, 31)),
        ("gpt-oss", "blk.0.attn_sinks.weight", None),
        ("gpt-oss", "blk.3.attn_sinks.weight", (3,)),
        ("glm4moe", "blk.1.exp_probs_b.bias", None),
        ("qwen2moe", "blk.1.ffn_gate_inp_shexp.weight", (1, 63)),
    ],
)
def test_missing_or_misshapen_tensors_of_experts(refused, name, tensor, shape):
    assert tensor in refused(name=name, tensors={tensor: shape})


def layers(tmp_path, name, **changes):
    file = open_model(str(write(name, tmp_path / "l.gguf", **changes)))
    found = [layer.experts is not None for layer in load_spec(file).layers]
    file.close()
    return found


def test_which_layers_have_experts(tmp_path):
    assert layers(tmp_path, "qwen3moe") == [True] * 3
    assert layers(tmp_path, "glm4moe") == [False, True, True]  # the draft layer behind them does not run
    every = {"interleave_moe_layer_step": 2}
    assert layers(tmp_path, "ernie4_5-moe", layers=6, dense=2, every=2, keys=every) == [False, False, False, True, False, True]
    assert layers(tmp_path, "llama") == [False] * 3


# ---- stacks ------------------------------------------------------------------------------------------------


def rewritten(path, name, change):
    """A tiny model whose tensors went through `change`: {name: array} -> {name: array, or (blocks, format)}."""
    model = Model(name)
    writer = GGUFWriter(str(path), model.architecture)
    for key, value in model.metadata().items():
        add_key(writer, key, value)
    add_tokenizer(writer, model.tokenizer)
    made = change({tensor: values(tensor, shape, model.embed_std, 0) for tensor, shape in model.shapes()})
    for tensor, x in made.items():
        data, kind = x if isinstance(x, tuple) else (x, None)
        writer.add_tensor(tensor, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Tiny(path)


def fused(tensors):
    """Gate and up of every expert as one stack, gate first, with one stack of biases."""
    out = dict(tensors)
    for name in tensors:
        if "ffn_gate_exps" in name:
            up = out.pop(name.replace("gate", "up"))
            out[name.replace("gate", "gate_up")] = np.concatenate([out.pop(name), up], 1)
    return out


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "glm4moe"])
def test_fused_stacks_are_their_parts(tmp_path, name):
    ids = text(30)
    apart, together = (rewritten(tmp_path / f"{i}.gguf", name, change) for i, change in enumerate((dict, fused)))
    steps = [step for step in together.program.steps if step.op == "expert_linear"]
    assert [step.args.get("rows") for step in steps[:3]] == [(0, 32), (32, 32), None]
    assert np.array_equal(feed(together.plan(), ids), feed(apart.plan(), ids))
    for model in (apart, together):
        model.file.close()


def test_biases_of_experts_may_be_missing(tmp_path):
    def zero(tensors):
        return {name: 0 * x if name.endswith(".bias") else x for name, x in tensors.items()}

    def bare(tensors):
        return {name: x for name, x in tensors.items() if not name.endswith(".bias")}

    zeros, without = (rewritten(tmp_path / f"{i}.gguf", "gpt-oss", change) for i, change in enumerate((zero, bare)))
    assert np.array_equal(feed(zeros.plan(), text(20)), feed(without.plan(), text(20)))
    for model in (zeros, without):
        model.file.close()


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3moe"])
@pytest.mark.parametrize("kind", ["MXFP4", "Q8_0", "Q4_0"])
def test_quantized_experts_equal_llama_cpp_given_their_values(tmp_path, name, kind):
    """Given the blocks themselves llama.cpp rounds activations to eight bits, which moves its own results by more than this."""
    kind = GGMLQuantizationType[kind]

    def blocks(tensors):
        return {n: (quantize(x, kind), kind) if "exps.weight" in n else x for n, x in tensors.items()}

    def decoded(tensors):
        return {n: dequantize(x[0], kind) if isinstance(x, tuple) else x for n, x in blocks(tensors).items()}

    ours, theirs = rewritten(tmp_path / "q.gguf", name, blocks), rewritten(tmp_path / "d.gguf", name, decoded)
    oracle = Llama(theirs.path, CONTEXT)
    try:
        for length in (1, 40):
            ids = text(length)
            assert distance(feed(ours.plan(), ids), oracle.logits(ids)) < AGAINST_LLAMA
    finally:
        oracle.close()
        for model in (ours, theirs):
            model.file.close()


def test_only_the_experts_asked_for_are_decoded(tmp_path):
    model = Tiny(write("qwen3moe", tmp_path / "m.gguf", "Q8_0"))
    tensor = model.file.tensors["blk.1.ffn_down_exps.weight"]
    stack, plan = Stack(tensor), model.plan()
    assert stack.shape == (8, 64, 32)
    whole = np.concatenate([stack[e, slice(0, 64)] for e in range(8)])
    stack = Stack(tensor)
    assert np.array_equal(stack[5, slice(8, 16)], whole.reshape(8, 64, 32)[5, 8:16])
    assert list(stack.decoded) == [5]
    feed(plan, text(9))
    assert not [name for name in plan._weights if "exps" in name], "a stack was decoded whole"
    model.file.close()


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "bailingmoe2", "qwen2moe"])
def test_a_row_is_the_same_to_the_bit_in_any_company(tmp_path, name):
    model, ids = Tiny(write(name, tmp_path / "m.gguf")), text(33)
    together = feed(model.plan(), ids)
    plan = model.plan()
    assert np.array_equal(np.concatenate([feed(plan, [token], i) for i, token in enumerate(ids)]), together)
    model.file.close()


# ---- what a person is told ---------------------------------------------------------------------------------


def test_a_spec_says_what_the_experts_are(tmp_path):
    file = open_model(str(write("glm4moe", tmp_path / "m.gguf")))
    assert "feed-forward 96, 8 experts of 32 in 2 layers, 3 used, one of 32 for all, vocabulary" in str(load_spec(file))
    file.close()


def test_inspect_says_what_the_experts_are_and_what_a_token_reads(tmp_path):
    path = str(write("glm4moe", tmp_path / "m.gguf"))
    d = describe(path)
    assert d["run"]["experts"] == {"layers": 2, "count": 8, "used": 3, "width": 32, "shared_width": 32}
    stacks = 2 * 8 * 3 * 32 * 64 * 4
    drafts = sum(t["bytes"] for t in d["tensors"] if t["name"].startswith("blk.3."))
    rows = 511 * 64 * 4  # of the embedding, all but the token's
    assert d["memory"]["active_bytes"] == d["memory"]["weights_bytes"] - drafts - rows - stacks * 5 // 8
    shown = render(d)
    assert "  experts    8 of width 32 in 2 layers, 3 used per token, one of width 32 for all\n" in shown
    assert "of them per token" in shown
    d = describe(str(write("qwen3moe", tmp_path / "m.gguf")))
    assert "3 used per token\n" in render(d)
    d = describe(str(write("llama", tmp_path / "m.gguf")))
    assert d["run"]["experts"] is None and d["memory"]["active_bytes"] == d["memory"]["weights_bytes"]
    assert "expert" not in render(d)
