"""Falcon 7B, 40B and 180B: attention and feed-forward side by side, GELU without a gate, no bias but those of the norms.

One norm for both in 7B; in the larger ones attention has a norm of its own, attn_norm_2.
"""

from .spec import Family

FAMILY = Family(
    norm="layer+bias",
    attn_norm=("attn_norm_2", "attn_norm"),
    ffn_norm="attn_norm",
    parallel="always",
    act="gelu",
    gate=None,
    biases=(),
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 1, "head_dim": 16, "feed_forward": 112, "tokenizer": "falcon"}
TINY |= {"absent": ("attn_norm_2",), "fused": True, "untied": True}
