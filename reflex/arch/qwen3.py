"""Qwen 3 dense: no biases, an RMS norm on every head of q and k before the rotation."""

from .spec import Family

FAMILY = Family(head_norm="rms")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"keys": {"rope.freq_base": 1e6}}
