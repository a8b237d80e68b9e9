"""Maincoder 1B: an RMS norm on every head of q and k, after the rotation and not before it; adjacent pairs rotate."""

from .spec import Family

FAMILY = Family(head_norm="rms", head_norm_at="after rope", rope="norm")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 112, "tokenizer": "qwen2"}
TINY |= {"keys": {"rope.freq_base": 1e6}}
