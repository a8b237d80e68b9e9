"""What Gemma 3n and 4 add to tests/tiny.py: small embeddings of every layer, layers that share keys and values, heads of two sizes.

The TINY record of such a family has besides the sizes of every model
    window_head     dimensions of a head in layers with a window; head_dim is that of the others
    inputs          width of the small embeddings; 0: there are none
    owners          leading layers with keys and values of their own; 0: all
    no_values       full layers have no attn_v
    keeps_keys      layers that share have matrices all the same
    streams         four residual streams
    out_scale, out_gate     which optional tensors a layer has
"""

FACTS = {"window_head": 0, "inputs": 0, "owners": 0, "no_values": False, "keeps_keys": False, "out_scale": False, "out_gate": False}
FACTS |= {"streams": False}
TOKENIZERS = {  # as those of tests/tiny.py
    "gemma4": ("gemma4", None, ["<pad>", "<eos>", "<bos>", "<unk>"], 2, 1, True),
}
PLAIN = {"attention.shared_kv_layers": None, "feed_forward_length": 96}
BY_SOFTMAX = {"expert_gating_func": 1, "expert_weights_norm": None}
VARIANTS = {  # as those of tests/tiny.py; a key that is None is left out
    "afmoe-softmax": ("afmoe", {"layers": 2, "keys": BY_SOFTMAX}),
    "step35-softmax": ("step35", {"head_norms": False, "factors": (), "keys": BY_SOFTMAX | {"swiglu_clamp_exp": None}}),
    "gemma4-dense": (
        "gemma4",
        {
            "layers": 3,
            "inputs": 0,
            "owners": 0,
            "no_values": True,
            "keys": PLAIN
            | {"attention.sliding_window_pattern": [True, True, False], "attention.head_count_kv": [2, 2, 1]}
            | {"final_logit_softcapping": None, "rope.freq_base_swa": None},
        },
    ),
    "gemma4-experts": (
        "gemma4",
        {
            "layers": 3,
            "inputs": 0,
            "owners": 0,
            "no_values": True,
            "experts": (8, 3, 32),
            "fused_experts": True,
            "untied": True,
            "out_scale": False,
            "keys": PLAIN
            | {"attention.sliding_window_pattern": [True, False, True], "attention.head_count_kv": [2, 1, 2]}
            | {"final_logit_softcapping": 0.0},
        },
    ),
}


def metadata(model):
    """Keys without the architecture's prefix."""
    keys = {}
    if model.family.inputs:
        keys["embedding_length_per_layer_input"] = model.inputs
    if model.window_head:
        keys |= {"attention.key_length": model.head_dim, "attention.value_length": model.head_dim}
        keys |= {"attention.key_length_swa": model.window_head, "attention.value_length_swa": model.window_head}
        keys |= {"rope.dimension_count": model.head_dim, "rope.dimension_count_swa": model.window_head}
    return keys


def head_dim(model, i):
    """Dimensions of a head of layer i."""
    windows = model.keys.get("attention.sliding_window_pattern")
    return model.window_head if model.window_head and windows[i] else model.head_dim


def still(model, name, x):
    """The numbers of a tensor as this model has them; most divisors of frequencies stand for pairs that do not turn."""
    if name == "rope_freqs.weight" and model.window_head:
        x[: len(x) // 4], x[len(x) // 4 :] = 1, 1e30
    if name.endswith("attn_q_norm.weight") and model.family.attn_scale:
        x *= 0.3  # scores are not divided by the size of a head
    return x


def owns(model, i):
    return not model.owners or i < model.owners


def outer(model):
    """Tensors in front of the layers."""
    if model.inputs:
        every, vocabulary = model.inputs * model.layers, 512
        yield "per_layer_token_embd.weight", (vocabulary, every)
        yield "per_layer_model_proj.weight", (every, model.width)
        yield "per_layer_proj_norm.weight", (model.inputs,)
    if model.streams:
        yield "altup_proj.weight", (3, model.width, model.width)
        yield "altup_unembd_proj.weight", (3, model.width, model.width)


def matrices(model, i, given):
    """The matrices of a layer's attention without those that it lacks."""
    full = model.window_head and head_dim(model, i) == model.head_dim
    lacks = {"attn_v"} if model.no_values and full else set()
    if not owns(model, i) and not model.keeps_keys:
        lacks = {"attn_k", "attn_v"}
    return [matrix for matrix in given if matrix[0] not in lacks]


def shapes(model, i, heads):
    """Further tensors of a layer as (name, numpy shape), without the layer before the name."""
    width = model.width
    if model.inputs:
        yield "inp_gate.weight", (model.inputs, width)
        yield "proj.weight", (width, model.inputs)
        yield "post_norm.weight", (width,)
    if model.streams:
        yield "altup_router.weight", (4, width)
        yield "altup_router_norm.weight", (width,)
        yield "altup_predict_coef.weight", (16, 4)
        yield "altup_correct_coef.weight", (4, 4)
        yield "altup_correct_scale.weight", (width,)
        yield "laurel_l.weight", (64, width)
        yield "laurel_r.weight", (width, 64)
        yield "laurel_post_norm.weight", (width,)
    if model.out_scale:
        yield "layer_output_scale.weight", (1,)
    if model.out_gate:
        gates = head_dim(model, i) if model.family.out_gate == "elements" else 1
        yield "attn_gate.weight", (heads * gates, width)
    if model.family.beside and model.experts:
        for role in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
            yield f"{role}.weight", (width,)
        yield "ffn_gate_inp.scale", (width,)
        yield "ffn_down_exps.scale", (model.experts[0],)
