"""Hunyuan A13B: an RMS norm on every head of q and k after the half-split rotation, softmax routing, one shared expert.

The converter has stretched the base by rope.scaling.alpha already; experts and shared expert are feed_forward_length wide.
"""

from .spec import Family

FAMILY = Family(head_norm="rms", head_norm_at="after rope", experts="always", shared="key or dense")

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 32, "tokenizer": "hunyuan-moe"}
TINY |= {"experts": (8, 3, 32), "shared": 32, "keys": {"expert_feed_forward_length": 32}}
