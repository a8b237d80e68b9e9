"""Kimi Linear, 48B-A3B: a delta rule with a decay for each channel in three of four layers, in the others latent attention.

Nothing rotates. Sigmoid routing with a choosing bias behind the leading dense layer, and shared experts in one.
"""

from .spec import Family

FAMILY = Family(
    output="required",
    latent="same strength",
    rope=None,
    mixer="delta of channels",
    keys=("expert_gating_func", "expert_weights_scale"),
    biases=(),
    experts="always",
    gating=None,
    choice_bias="optional",
    shared="count",
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 1, "head_dim": 24, "feed_forward": 96, "tokenizer": "kimi-k2"}
TINY |= {"latent": (32, 8, 12), "mixer": {"taps": 4, "heads": 4, "key_heads": 4, "key_dim": 16, "value_dim": 16}, "untied": True}
TINY |= {"experts": (8, 3, 32), "shared": 32, "dense": 1, "choice_bias": True}
TINY |= {"keys": {"attention.head_count_kv": [0, 0, 0, 1], "expert_shared_count": 1, "expert_gating_func": 2}}
TINY["keys"] |= {"expert_weights_scale": 2.5, "attention.value_length": 16}  # width by heads, as in real files
