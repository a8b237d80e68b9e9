"""The recurrent half of tests/tiny.py: keys and tensors of layers with a state, and variants of such families.

The TINY record of a family with such layers has a `mixer`: taps, and where it has a matrix of state heads, key_heads, key_dim and
value_dim; `joint`: betas and alphas in one tensor; `old`: layers whose q, k, v, z are in one tensor; `conv_bias`, `norm`: whether
a scan has them.
"""

import numpy as np

TOKENIZERS = {  # as those of tests/tiny.py
    "qwen35": ("gpt2", "qwen35", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], 0, 2, False),
    "lfm2": ("gpt2", "lfm2", ["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|im_end|>"], 1, 3, True),
    "falcon-h1": ("gpt2", "falcon-h1", ["<|endoftext|>", "<|end_of_text|>"], 0, 1, False),
    "kimi-k2": ("gpt2", "kimi-k2", ["[BOS]", "[EOS]", "<|im_end|>"], 0, 1, False),
    "default": ("gpt2", "default", ["<unk>", "<s>", "</s>"], 1, 2, True),
}
PLAIN = ("ssm_a", "ssm_d", "conv1d", "shortconv.conv", "ssm_f_", "ssm_g_")  # parts of names, as PLAIN of tests/tiny.py
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
EPSILON = {"attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": 0.5}
SCAN = {"taps": 4, "heads": 6, "key_heads": 1, "key_dim": 16, "value_dim": 16}
VARIANTS = {
    "qwen35-listed": ("qwen35", {"drafts": 0, "keys": {"attention.recurrent_layers": [False, True, False, True]}}),
    "qwen35-alternating": ("qwen35", {"layers": 5, "drafts": 0, "untied": True, "keys": {"full_attention_interval": 2}}),
    "qwen3next-old": (
        "qwen3next",
        {
            "mixer": {"taps": 3, "heads": 6, "key_heads": 2, "key_dim": 24, "value_dim": 24, "old": (0, 2)},
            "keys": {"rope.dimension_count": 32},
        },
    ),
    "lfm2-ends-with-attention": ("lfm2", {"layers": 3, "keys": {"attention.head_count_kv": [0, 0, 2], "shortconv.l_cache": 4}}),
    "mamba2-one-group": ("mamba2", {"mixer": SCAN, "untied": False}),
    "granitehybrid-dense": (
        "granitehybrid",
        {"experts": (), "feed_forward": 96, "mixer": SCAN | {"heads": 8}, "keys": {"rope.scaling.finetuned": False}},
    ),
    "falcon-h1-without-norm": ("falcon-h1", {"mixer": SCAN | {"norm": False}, "untied": False}),
    "nemotron_h_moe-short-rows": ("nemotron_h_moe", {"keys": {"moe_latent_size": 48, "expert_weights_norm": False}}),
    "falcon-h1-biases": ("falcon-h1", {"biases": (*ATTENTION[:3], "ffn_gate", "ffn_up", "ffn_down")}),
    "granitehybrid-biases": ("granitehybrid", {"biases": ATTENTION}),
    "nemotron_h-biases": ("nemotron_h", {"biases": (*ATTENTION, "ffn_up", "ffn_down")}),
    "nemotron_h-epsilon": ("nemotron_h", {"keys": EPSILON}),
    "nemotron_h_moe-epsilon": (
        "nemotron_h_moe",
        {"keys": EPSILON | {"expert_gating_func": None, "expert_weights_norm": None}},
    ),
    "nemotron_h-ends-with-a-scan": (
        "nemotron_h",
        {"layers": 4, "keys": {"attention.head_count_kv": [0, 2, 0, 0], "feed_forward_length": [96, 0, 96, 0]}},
    ),
}


def recurrent(model, i):
    """Whether layer i has a mixer."""
    family = model.family
    if not family.mixer:
        return False
    if family.mixer_in in ("all", "beside"):
        return True
    if family.mixer_in == "interval":
        listed = model.keys.get("attention.recurrent_layers")
        if i >= model.layers:
            return False
        return listed[i] if listed else (i + 1) % model.keys.get("full_attention_interval", 4) != 0
    return not model.at("attention.head_count_kv", model.kv_heads, i) and not feeds_alone(model, i)


def feeds_alone(model, i):
    """Whether layer i is a feed-forward and nothing else."""
    return model.family.one_part and bool(model.at("feed_forward_length", model.feed_forward, i))


def attends(model, i):
    """Whether layer i has attention."""
    return not feeds_alone(model, i) and (not recurrent(model, i) or model.family.mixer_in == "beside")


def metadata(model):
    """Keys without the architecture's prefix."""
    m, kind = model.mixer, model.family.mixer
    if not kind:
        return {}
    if kind == "conv":
        return {"shortconv.l_cache": m["taps"]}
    if kind == "delta of channels":
        return {"ssm.conv_kernel": m["taps"], "kda.head_dim": m["key_dim"]}
    keys = {"ssm.conv_kernel": m["taps"], "ssm.state_size": m["key_dim"], "ssm.group_count": m["key_heads"]}
    if model.drafts:
        keys["nextn_predict_layers"] = model.drafts
    keys |= {"ssm.time_step_rank": m["heads"], "ssm.inner_size": m["heads"] * m["value_dim"]}
    if model.family.mixer_in == "all":
        keys |= {"attention.head_count": None}
    return keys


def shapes(model, i):
    """The tensors of the mixer of layer i as (name, numpy shape), without the layer before the name."""
    yield from SHAPES[model.family.mixer](model, i, model.mixer)


def delta(model, i, m):
    width, heads, inner, keys = model.width, m["heads"], m["heads"] * m["value_dim"], m["key_heads"] * m["key_dim"]
    channels = 2 * keys + inner
    if i in m.get("old", ()):
        yield "ssm_in.weight", (channels + inner, width)
    else:
        yield "attn_qkv.weight", (channels, width)
        yield "attn_gate.weight", (inner, width)
    if m.get("joint") or "old" in m:
        yield "ssm_ba.weight", (2 * heads, width)
    else:
        yield "ssm_beta.weight", (heads, width)
        yield "ssm_alpha.weight", (heads, width)
    yield "ssm_conv1d.weight", (channels, m["taps"])
    yield "ssm_dt.bias", (heads,)
    yield "ssm_a", (heads,)
    yield "ssm_norm.weight", (m["value_dim"],)
    yield "ssm_out.weight", (width, inner)


def channel_delta(model, i, m):
    width, dim, heads = model.width, m["key_dim"], model.heads
    wide = heads * dim
    for word in "qkv":
        yield f"attn_{word}.weight", (wide, width)
        yield f"ssm_conv1d_{word}.weight", (wide, 1, m["taps"])
    for word in "fg":
        yield f"ssm_{word}_a.weight", (dim, width)
        yield f"ssm_{word}_b.weight", (wide, dim)
    yield "ssm_beta.weight", (heads, width)
    yield "ssm_a", (heads, 1)
    yield "ssm_dt.bias", (wide,)
    yield "ssm_norm.weight", (dim,)
    yield "attn_output.weight", (width, wide)


def scan(model, i, m):
    width, heads, inner, keys = model.width, m["heads"], m["heads"] * m["value_dim"], m["key_heads"] * m["key_dim"]
    channels = inner + 2 * keys
    yield "ssm_in.weight", (inner + channels + heads, width)
    yield "ssm_conv1d.weight", (channels, m["taps"])
    if m.get("conv_bias", True):
        yield "ssm_conv1d.bias", (channels,)
    yield "ssm_dt.bias", (heads,)
    yield "ssm_a", (heads, 1)
    yield "ssm_d", (heads, 1)
    if m.get("norm", True):
        yield "ssm_norm.weight", (m["key_heads"], inner // m["key_heads"])
    yield "ssm_out.weight", (width, inner)


def conv(model, i, m):
    width = model.width
    yield "shortconv.in_proj.weight", (3 * width, width)
    yield "shortconv.conv.weight", (width, model.keys.get("shortconv.l_cache", m["taps"]))
    yield "shortconv.out_proj.weight", (width, width)


SHAPES = {"delta": delta, "delta of channels": channel_delta, "scan": scan, "conv": conv}


def values(name, x):
    """The numbers of one tensor, made of normal ones; None for a tensor of another kind."""
    if name.endswith("ssm_a"):
        return -np.exp(0.7 * x)
    if name.endswith("ssm_d"):
        return 1 + 0.3 * x
    if name.endswith("shortconv.conv.weight") or ("ssm_conv1d" in name and not name.endswith(".bias")):
        return x / x.shape[-1] ** 0.5
    return None
