"""Hunyuan dense, 0.5B to 7B: an RMS norm on every head of q and k, after the half-split rotation.

rope.scaling.alpha, where positive, stretches the base: base * alpha^(d / (d - 2)), heads of d.
"""

from .spec import Family

FAMILY = Family(head_norm="rms", head_norm_at="after rope", keys=("rope.scaling.alpha",))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "hunyuan"}
TINY |= {"keys": {"rope.scaling.alpha": 50.0}}
