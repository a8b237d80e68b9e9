"""Qwen 1.5, 2 and 2.5: as llama with half-split rotation and biases on q, k and v; the window key is ignored."""

from .spec import Family

FAMILY = Family(biases=("qkv", "output"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v"), "keys": {"rope.freq_base": 1e6, "attention.sliding_window": 16}}
