"""Files of the families with latent attention, states, several streams or groups of experts, whose keys and tensors contradict each
other: every key of the architecture and every kind of tensor, changed in ways that no writer means.

Each is one line with the right exit code, or a model that computes numbers; a tensor of another shape is never one that is used.
"""

import re
import struct

import numpy as np
import pytest
import tiny
from changes import Entry

import reflex
from reflex.errors import ReflexError
from reflex.open import open_model

U8, U32, I32, F32, BOOL, STRING, ARRAY = 0, 4, 5, 6, 7, 8, 9
FAMILIES = ("deepseek2", "deepseek2-joined", "kimi-linear", "llama4", "gemma4", "gemma3n", "kolibri1", "mimo2", "step35")
FAMILIES += ("qwen35", "qwen3next-old", "lfm2moe", "mamba2", "granitehybrid", "falcon-h1", "nemotron_h_moe")
FINE = {"context_overflow": 6, "model_file": 3, "unsupported": 3, "out_of_memory": 5}  # category: exit code
IDS = [3 + 7 * i % 250 for i in range(5)]
OPTIONAL = {  # tensors that a file of the family may lack, as llama.cpp has it
    "deepseek2": {"output.weight", "exp_probs_b.bias"},
    "deepseek2-joined": {"output.weight"},
    "kimi-linear": {"exp_probs_b.bias"},
    "llama4": {"output.weight", "rope_freqs.weight"},
    "gemma4": {"attn_v.weight", "layer_output_scale.weight", "rope_freqs.weight"},
    "mimo2": {"attn_sinks.weight", "exp_probs_b.bias"},
    "step35": {"attn_gate.weight", "exp_probs_b.bias", "rope_freqs.weight", "rope_factors_long.weight"},
    "qwen3next-old": {"output.weight"},
    "mamba2": {"output.weight"},
    "falcon-h1": {"output.weight", "ssm_norm.weight"},
    "nemotron_h_moe": {"output.weight"},
}


def number(kind, value):
    return kind, struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}[kind], value)


def array(kind, *values):
    letter = {U32: "I", I32: "i", F32: "f", BOOL: "B"}[kind]
    return ARRAY, struct.pack(f"<IQ{len(values)}{letter}", kind, len(values), *values)


def others(entry):
    """(type, bytes) of what a key might be instead; None: it is not there."""
    yield None
    if entry.kind == U32:
        found = int.from_bytes(entry.value, "little")
        yield from (number(U32, value) for value in {0, 1, found + 1, found // 2, 1 << 20, (1 << 32) - 1} - {found})
        yield from (number(I32, -1), number(F32, 1.5), (STRING, bytes(8)), array(U32, found, found))
    elif entry.kind == F32:
        yield from (number(F32, value) for value in (0.0, -1.0, float("nan"), float("inf"), 1e30))
    elif entry.kind == BOOL:
        yield from (number(BOOL, 2), number(U32, 5), array(BOOL, 1))
    elif entry.kind == ARRAY and len(entry.value) < 500:
        count = int.from_bytes(entry.value[4:12], "little")
        for values in ((1,) * (count - 1), (1,) * (count + 1), (), (0,) * count, (7,) * count):
            yield array(U32, *values)
        yield from (array(I32, *(-1,) * count), array(F32, *(1.5,) * count), array(F32, *(float("nan"),) * count), number(U32, 3))
        yield ARRAY, struct.pack("<IQ", STRING, count) + bytes(8 * count)


def roles(tree):
    """(index, role) of the first tensor of each kind."""
    seen = set()
    for index, (name, *_) in enumerate(tree.tensors):
        role = re.sub(r"^blk\.\d+\.", "", name.decode())
        if role not in seen:
            seen.add(role)
            yield index, role


def shapes(dims):
    """Shapes that a tensor does not have."""
    for axis, size in enumerate(dims):
        for other in {0, 1, size - 1, 2 * size, 1 << 40} - {size}:
            yield [*dims[:axis], other, *dims[axis + 1 :]]
    yield [*dims, 2]
    if dims[::-1] != dims:
        yield dims[::-1]


def outcome(path, data, used=None, compute=False):
    """None where the file loads, else its refusal; `used`: a tensor, the result then says whether the program reads it."""
    path.write_bytes(data)
    try:
        if compute:
            with reflex.load(path, backend="cpu", threads=1) as model:
                return "numbers" if np.isfinite(np.array(model.logits(IDS))).all() else "no numbers"
        file, _, session = open_model(str(path), backend="cpu", threads=1)
        reads = any(used in step.weights for step in session.plan.program.steps)
        session.plan.close()
        file.close()
        return "read" if reads else "not read"
    except ReflexError as error:
        line = error.line()
        assert "\n" not in line and line.isprintable() and len(line) < 3000, line
        assert error.exit_code == FINE.get(error.category), line
        return "refused"


@pytest.mark.parametrize("name", FAMILIES)
def test_keys(files, tmp_path, name):
    """`1e30` and the like may be a model without numbers; everything else that is taken computes some."""
    tree, wrong, refused = files(name), [], 0
    prefix = tiny.MODELS[name][0].encode() + b"."
    for index, entry in enumerate(tree.keys):
        for other in others(entry) if entry.name.startswith(prefix) else ():
            changed = tree.copy()
            changed.keys[index : index + 1] = [] if other is None else [Entry(entry.name, *other)]
            found = outcome(tmp_path / "m.gguf", changed.bytes(), compute=True)
            refused += found == "refused"
            if found == "no numbers" and not (entry.kind == F32 and other == number(F32, 1e30)):
                wrong.append((entry.name, other))
    assert wrong == [] and refused > 50


@pytest.mark.parametrize("name", FAMILIES)
def test_tensors(files, tmp_path, name):
    tree, wrong, refused = files(name), [], 0
    for index, role in roles(tree):
        tensor, dims, *_ = tree.tensors[index]
        changed = tree.copy()
        del changed.tensors[index]
        needed = role not in OPTIONAL.get(name, ()) and "nextn" not in role
        if needed and outcome(tmp_path / "m.gguf", changed.bytes()) != "refused":
            wrong.append(("absent", role))
        for shape in shapes(dims):
            changed = tree.copy()
            changed.tensors[index][1] = shape
            found = outcome(tmp_path / "m.gguf", changed.bytes(), tensor.decode())
            refused += found == "refused"
            if found == "read":
                wrong.append((role, shape))
    assert wrong == [] and refused > 50


# ---- what must be refused, with the fact that helps ------------------------------------------------------------

LAYERS = {"qwen35-listed": 4, "gemma3n": 22, "kolibri1": 5}
BAD = {  # what: (model, keys, words of the refusal)
    "a rank that is not that of the tensors": ("deepseek2", {"attention.q_lora_rank": number(U32, 1000)}, "q_lora_rank 1000"),
    "no rank where queries are compressed": ("deepseek2", {"attention.q_lora_rank": number(U32, 0)}, "24 in blk.0.attn_q_a"),
    "a rank of 0": ("deepseek2", {"attention.kv_lora_rank": number(U32, 0)}, "kv_lora_rank"),
    "a huge rank": ("deepseek2", {"attention.kv_lora_rank": number(U32, 1 << 31)}, "kv_lora_rank"),
    "a cached key of another size": ("deepseek2", {"attention.key_length": number(U32, 100)}, "disagree"),
    "two keys for all heads": ("deepseek2", {"attention.head_count_kv": number(U32, 2)}, "1 or 4"),
    "rotated dimensions beyond a head": ("deepseek2", {"rope.dimension_count": number(U32, 4096)}, "rotated dimensions"),
    "a scale without end": ("deepseek2", {"rope.scaling.yarn_log_multiplier": number(F32, 1e30)}, "yarn_log_multiplier"),
    "negative groups": ("deepseek2", {"expert_group_count": number(I32, -1)}, "groups"),
    "groups that do not divide": ("deepseek2", {"expert_group_count": number(U32, 3)}, "3 groups"),
    "more groups used than there are": ("deepseek2", {"expert_group_used_count": number(U32, 9)}, "9 used"),
    "state of no size": ("qwen35", {"ssm.state_size": number(U32, 0)}, "ssm.state_size"),
    "a huge state": ("qwen35", {"ssm.state_size": number(U32, 1 << 24)}, "at most 268435456 numbers"),
    "heads that do not divide": ("qwen35", {"ssm.group_count": number(U32, 3)}, "contradict"),
    "a filter of one tap": ("qwen35", {"ssm.conv_kernel": number(U32, 1)}, "2 to 64"),
    "a filter of a million taps": ("mamba2", {"ssm.conv_kernel": number(U32, 1 << 20)}, "2 to 64"),
    "an inner size of its own": ("mamba2", {"ssm.inner_size": number(U32, 100)}, "contradict"),
    "an interval of 0": ("qwen35", {"full_attention_interval": number(U32, 0)}, "1 or more"),
    "flags that are numbers": ("qwen35-listed", {"attention.recurrent_layers": array(U32, 1, 1, 7, 0)}, "0 and 1; found 7"),
    "flags for fewer layers": ("qwen35-listed", {"attention.recurrent_layers": array(BOOL, 1, 1, 0)}, "4"),
    "a pattern of fractions": ("kolibri1", {"attention.sliding_window_pattern": array(F32, *[0.5] * 5)}, "neither"),
    "more shared layers than layers": ("gemma3n", {"attention.shared_kv_layers": number(U32, 22)}, "0 to 21"),
    "shared layers below 0": ("gemma3n", {"attention.shared_kv_layers": number(I32, -1)}, "0 to 21"),
    "deviations that are no numbers": ("gemma3n", {"activation_sparsity_scale": array(F32, *[float("nan")] * 22)}, "found nan"),
    "deviations beyond all": ("gemma3n", {"activation_sparsity_scale": array(F32, *[float("inf")] * 22)}, "found inf"),
    "another number of streams": ("gemma3n", {"altup.num_inputs": number(U32, 3)}, "altup.num_inputs"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_refused_with_the_fact_that_helps(files, tmp_path, what):
    name, keys, words = BAD[what]
    tree, prefix = files(name), tiny.MODELS[name][0]
    for key, value in keys.items():
        full = f"{prefix}.{key}".encode()
        tree.keys = [entry for entry in tree.keys if entry.name != full] + [Entry(full, *value)]
    (tmp_path / "m.gguf").write_bytes(tree.bytes())
    with pytest.raises(ReflexError) as caught:
        open_model(str(tmp_path / "m.gguf"), backend="cpu", threads=1)
    assert words in caught.value.line() and caught.value.exit_code == 3, caught.value.line()


@pytest.mark.parametrize("name", ["mamba2", "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe"])
def test_filters_of_a_scan_have_a_bias(files, tmp_path, name):
    """llama.cpp refuses a file without, or ends by a signal: nothing to compare with."""
    tree = files(name)
    tree.tensors = [tensor for tensor in tree.tensors if not tensor[0].endswith(b"ssm_conv1d.bias")]
    assert outcome(tmp_path / "m.gguf", tree.bytes()) == "refused"


def test_layers_that_keep_all_of_their_gate(tmp_path):
    """Minus infinity, as converters write the share 0, is what 0 is."""
    found = []
    for none in (float("-inf"), 0.0):
        keys = {"activation_sparsity_scale": [1.6448533535003662] * 10 + [none] * 12}
        with reflex.load(tiny.write("gemma3n", tmp_path / "m.gguf", keys=keys), backend="cpu", threads=1) as model:
            found.append(model.logits(IDS).tobytes())
    assert found[0] == found[1]
