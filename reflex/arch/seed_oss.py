"""Seed-OSS 36B: biases on q, k and v, half-split rotation, heads wider than width / heads.

The norm before the feed-forward goes by the name that other families give to a norm after attention.
"""

from .spec import Family

FAMILY = Family(ffn_norm="post_attention_norm")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "seed-coder"}
TINY |= {"untied": True, "biases": ("attn_q", "attn_k", "attn_v"), "keys": {"rope.freq_base": 1e7}}
