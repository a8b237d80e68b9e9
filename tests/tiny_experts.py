"""The mixture-of-experts half of tests/tiny.py: keys and tensors of layers with experts, and variants of such families.

The TINY record of a family with experts has besides the sizes of every model
    experts     (count, used, width of one)
    shared      width of the shared expert; its keys are among the record's `keys`
    dense       leading layers without experts
    every       of the layers behind them every n-th has experts, counted from the first layer of all
    drafts      trailing layers that do not run, with the tensors of a predicting head
    fused_experts       gate and up lie in one stack
    bare_bias           the choosing bias has no ending
    expert_biases, choice_bias      which optional vectors the file has
"""

FACTS = {"expert_biases": False, "choice_bias": False, "experts": (), "shared": 0, "dense": 0, "every": 1, "drafts": 0}
FACTS |= {"fused_experts": False, "bare_bias": False}
TOKENIZERS = {  # as those of tests/tiny.py
    "bailingmoe": ("gpt2", "bailingmoe", ["<|startoftext|>", "<|endoftext|>"], 0, 1, False),
    "bailingmoe2": ("gpt2", "bailingmoe2", ["<|startoftext|>", "<|endoftext|>"], 0, 1, False),
    "deepseek-llm": ("gpt2", "deepseek-llm", ["<begin of sentence>", "<end of sentence>"], 0, 1, True),
    "hunyuan-moe": ("gpt2", "hunyuan", ["<|startoftext|>", "<|eos|>"], 0, 1, False),
    "minimax-m2": ("gpt2", "minimax-m2", ["]~!b[", "[e~["], 0, 1, False),
    "llama4": ("gpt2", "llama4", ["<|begin_of_text|>", "<|end_of_text|>", "<|eot|>"], 0, 1, True),
    "kolibri1": ("gpt2", "kolibri1", ["<|padding|>", "<|im_start|>", "<|im_end|>"], 0, 2, False),
    "exaone-moe": ("gpt2", "exaone-moe", ["[BOS]", "[|endofturn|]"], 0, 1, False),
    "afmoe": ("gpt2", "afmoe", ["<|begin_of_text|>", "<|end_of_text|>"], 0, 1, True),
}
VARIANTS = {  # as those of tests/tiny.py; a key that is None is left out
    "llama-experts": ("llama", {"experts": (8, 2, 48), "feed_forward": 48, "untied": True}),
    "qwen2moe-wide": ("qwen2moe", {"experts": (6, 2, 32), "shared": 120, "keys": {"expert_shared_feed_forward_length": None}}),
    "qwen3moe-stated": ("qwen3moe", {"experts": (8, 3, 48), "untied": False, "fused": True}),
    "qwen3moe-groups": ("qwen3moe", {"layers": 2, "keys": {"expert_group_count": 4, "expert_group_used_count": 2}}),
    "granitemoe-shared": ("granitemoe", {"shared": 48, "keys": {"expert_shared_feed_forward_length": 48}}),
    "granitemoe-factors": ("granitemoe", {"layers": 2, "untied": True, "factors": ("rope_freqs",)}),
    "granitemoe-long": (
        "granitemoe",
        {
            "layers": 2,
            "factors": ("rope_factors_long", "rope_factors_short"),
            "keys": {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 64},
        },
    ),
    "phimoe-short": ("phimoe", {"keys": {"rope.scaling.original_context_length": 4096}}),
    "gpt-oss-own-base": (
        "gpt-oss",
        {"layers": 3, "keys": {"rope.freq_base_swa": 500.0, "rope.scaling.type": None, "attention.sliding_window_pattern": 3}},
    ),
    "glm4moe-air": ("glm4moe", {"head_norms": False, "biases": (), "untied": False, "drafts": 0}),
    "glm4moe-stated": ("glm4moe", {"layers": 2, "keys": {"expert_gating_func": 1}}),
    "glm4moe-plain": (
        "glm4moe",
        {"layers": 2, "shared": 64, "keys": {"expert_shared_count": 2, "expert_weights_norm": None, "expert_weights_scale": 0.0}},
    ),
    "ernie4_5-moe-plain": (
        "ernie4_5-moe",
        {"shared": 0, "choice_bias": False, "untied": True, "dense": 0, "keys": {"expert_shared_feed_forward_length": 0}},
    ),
    "dots1-plain": ("dots1", {"choice_bias": False, "keys": {"expert_gating_func": 1, "expert_weights_norm": None}}),
    "dots1-chosen": ("dots1", {"layers": 2, "keys": {"expert_gating_func": 3, "expert_weights_norm": False}}),
    "bailingmoe-plain": ("bailingmoe", {"keys": {"expert_weights_norm": None}}),
    "bailingmoe2-plain": (
        "bailingmoe2",
        {
            "layers": 2,
            "shared": 48,
            "choice_bias": False,
            "keys": {
                "expert_shared_count": 2,
                "expert_shared_feed_forward_length": 24,
                "expert_weights_norm": None,
                "expert_group_count": 1,
            },
        },
    ),
    "hunyuan-moe-own": ("hunyuan-moe", {"shared": 48, "untied": True, "keys": {"expert_shared_feed_forward_length": 48}}),
    "llama4-every": (
        "llama4",
        {"every": 1, "factors": ("rope_freqs",), "keys": {"attention.sliding_window": 4096, "interleave_moe_layer_step": 1}},
    ),
    "llama4-128-experts": ("llama4", {"layers": 4, "experts": (128, 1, 32)}),
    "exaone-moe-plain": (
        "exaone-moe",
        {
            "layers": 2,
            "shared": 32,
            "keys": {
                "expert_shared_feed_forward_length": None,
                "expert_gating_func": 1,
                "expert_weights_norm": None,
                "rope.freq_base_swa": 500.0,
            },
        },
    ),
    "hy_v3-fused": (
        "hy_v3",
        {"layers": 2, "fused_experts": True, "untied": False, "keys": {"expert_gating_func": 1, "expert_weights_norm": None}},
    ),
    "kolibri1-own-base": (
        "kolibri1",
        {
            "layers": 2,
            "keys": {"rope.freq_base_swa": 500.0, "attention.sliding_window": 9, "attention.sliding_window_pattern": [False, True]},
        },
    ),
    "mimo2-fused": ("mimo2", {"fused": True, "keys": {"attention.value_scale": None, "rope.freq_base_swa": None}}),
    "minimax-m2-softmax": ("minimax-m2", {"keys": {"expert_gating_func": 1}}),
}


def metadata(model):
    """Keys without the architecture's prefix. What a reader would assume without the key is left out."""
    if not model.experts:
        return {}
    count, used, width = model.experts
    keys = {"expert_count": count, "expert_used_count": used}
    if width != model.feed_forward // (used if model.family.split_width else 1):
        keys["expert_feed_forward_length"] = width
    if model.dense:
        keys["leading_dense_block_count"] = model.dense
    if model.every > 1:
        keys["interleave_moe_layer_step"] = model.every
    if model.drafts:
        keys["nextn_predict_layers"] = model.drafts
    return keys


def mixed(model, i):
    """Whether layer i has experts."""
    return bool(model.experts) and i >= model.dense and (i + 1) % model.every == 0


def shapes(model):
    """The tensors of a feed-forward with experts as (name, numpy shape), without the layer before the name."""
    (count, _, width), outer, family = model.experts, model.width, model.family
    yield "ffn_gate_inp.weight", (count, outer)
    inner = model.keys.get("moe_latent_size", outer)
    if inner != outer:
        yield "ffn_latent_down.weight", (inner, outer)
        yield "ffn_latent_up.weight", (outer, inner)
    stacks = (
        {"ffn_gate_up_exps": (2 * width, inner), "ffn_down_exps": (inner, width)}
        if model.fused_experts
        else {"ffn_gate_exps": (width, inner), "ffn_up_exps": (width, inner), "ffn_down_exps": (inner, width)}
    )
    if not family.gate:
        del stacks["ffn_gate_exps"]
    for role, (rows, columns) in stacks.items():
        yield f"{role}.weight", (count, rows, columns)
        if model.expert_biases:
            yield f"{role}.bias", (count, rows)
    if model.expert_biases:
        yield "ffn_gate_inp.bias", (count,)
    if model.choice_bias or family.choice_bias == "required":
        yield "exp_probs_b" if model.bare_bias else "exp_probs_b.bias", (count,)
    if model.shared:
        if family.gate:
            yield "ffn_gate_shexp.weight", (model.shared, outer)
        yield "ffn_up_shexp.weight", (model.shared, outer)
        yield "ffn_down_shexp.weight", (outer, model.shared)
        if family.shared_gate:
            yield "ffn_gate_inp_shexp.weight", (outer,)


def draft(model):
    """What a trailing layer has besides the tensors of an ordinary one."""
    yield "nextn.eh_proj.weight", (model.width, 2 * model.width)
    for role in ("enorm", "hnorm", "shared_head_norm"):
        yield f"nextn.{role}.weight", (model.width,)
