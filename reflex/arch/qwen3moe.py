"""Qwen 3 with experts, 30B-A3B and 235B-A22B, and Qwen 3 Coder: head norms before the rotation, renormalized softmax weights."""

from .spec import Family

FAMILY = Family(head_norm="rms", experts="always", split_width=True)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"untied": True, "experts": (8, 3, 32), "keys": {"rope.freq_base": 1e6}}
