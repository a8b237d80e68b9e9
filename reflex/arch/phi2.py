"""Phi 1, 1.5 and 2: attention and feed-forward both read one LayerNorm; a part of each head rotates, biases everywhere."""

from .spec import Family

FAMILY = Family(
    norm="layer+bias",
    ffn_norm="attn_norm",
    act="gelu",
    gate=None,
    output="required",
    biases=("qkv", "attn_output", "ffn", "output"),
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 96, "tokenizer": "phi2"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down", "output"), "untied": True}
TINY["keys"] = {"rope.dimension_count": 8}
