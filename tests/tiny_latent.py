"""The latent-attention half of tests/tiny.py: keys and tensors of layers that compress queries, keys and values.

The TINY record of such a family has besides the sizes of every model (head_dim: of a query and key)
    latent      (compressed dimensions, rotated dimensions, dimensions of a value)
    q_rank      dimensions of compressed queries; 0: they are not compressed
    joined      attn_kv_b holds keys and values of all heads, and no key tells the compressed sizes
"""

FACTS = {"latent": (), "q_rank": 0, "joined": False}
TOKENIZERS = {  # as those of tests/tiny.py
    "deepseek-v3": ("gpt2", "deepseek-v3", ["<begin of sentence>", "<end of sentence>"], 0, 1, True),
}
PLAIN = {"expert_group_count": None, "expert_group_used_count": None}
SOFTMAX = PLAIN | {"expert_gating_func": None, "expert_weights_norm": None, "expert_weights_scale": 1.0}
NO_YARN = {f"rope.scaling.{name}": None for name in ("type", "factor", "original_context_length", "yarn_log_multiplier")}
VARIANTS = {  # as those of tests/tiny.py; a key that is None is left out
    "deepseek2-lite": (
        "deepseek2",
        {"layers": 27, "branch": 0.25, "q_rank": 0, "choice_bias": False, "tokenizer": "deepseek-llm", "keys": SOFTMAX},
    ),
    "deepseek2-joined": ("deepseek2", {"joined": True, "choice_bias": False, "keys": SOFTMAX}),
    "deepseek2-without-log": ("deepseek2", {"layers": 2, "keys": {"rope.scaling.yarn_log_multiplier": None}}),
    "deepseek2-tempered": (
        "deepseek2",
        {
            "fused_experts": True,
            "untied": False,
            "drafts": 1,
            "keys": PLAIN | NO_YARN | {"attention.temperature_scale": 0.1, "attention.temperature_length": 8},
        },
    ),
    "mistral4-biased": (
        "mistral4",
        {"layers": 2, "choice_bias": True, "keys": {"expert_gating_func": 2, "expert_weights_norm": None}},
    ),
    "mistral4-plain": (
        "mistral4",
        {"layers": 2, "keys": NO_YARN | {"attention.temperature_scale": None} | SOFTMAX},
    ),
}


def metadata(model):
    """Keys without the architecture's prefix."""
    rank, turned, value = model.latent
    keys = {"attention.kv_lora_rank": rank, "rope.dimension_count": turned}
    if model.joined:
        keys |= {"attention.head_count_kv": model.heads}
        keys |= {"attention.key_length": model.head_dim, "attention.value_length": value}
    else:
        keys |= {"attention.head_count_kv": 1, "attention.key_length": rank + turned, "attention.value_length": rank}
        keys |= {"attention.key_length_mla": model.head_dim, "attention.value_length_mla": value}
    return keys | ({"attention.q_lora_rank": model.q_rank} if model.q_rank else {})


def shapes(model):
    """The tensors of a layer's attention as (name, numpy shape), without the layer before the name."""
    (rank, turned, value), width, heads = model.latent, model.width, model.heads
    queries, plain = heads * model.head_dim, model.head_dim - turned
    if model.q_rank:
        yield "attn_q_a.weight", (model.q_rank, width)
        yield "attn_q_a_norm.weight", (model.q_rank,)
        yield "attn_q_b.weight", (queries, model.q_rank)
    else:
        yield "attn_q.weight", (queries, width)
    yield "attn_kv_a_mqa.weight", (rank + turned, width)
    yield "attn_kv_a_norm.weight", (rank,)
    if model.joined:
        yield "attn_kv_b.weight", (heads * (plain + value), rank)
    else:
        yield "attn_k_b.weight", (heads, rank, plain)
        yield "attn_v_b.weight", (heads, value, rank)
    yield "attn_output.weight", (width, heads * value)
