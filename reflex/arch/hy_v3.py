"""Hunyuan 3: head norms before the rotation, leading dense layers, sigmoid routing unless a key says otherwise."""

from . import dots1

FAMILY = dots1.FAMILY.but(gating="sigmoid", shared="key", output="optional")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "hunyuan"}
TINY |= {"untied": True, "dense": 1, "experts": (8, 3, 32), "shared": 48, "choice_bias": True, "bare_bias": True}
TINY |= {"keys": {"expert_shared_feed_forward_length": 48, "expert_weights_norm": True, "expert_weights_scale": 2.5}}
