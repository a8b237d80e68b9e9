"""Nemotron 3 Nano and Super: as nemotron_h, every feed-forward with experts and a shared one, sigmoid routing with a choosing bias.

Experts have no gate; of the largest models they see a shortened row, moe_latent_size.
"""

from . import nemotron_h

FAMILY = nemotron_h.FAMILY.but(
    keys=("attention.layer_norm_epsilon", "expert_weights_norm", "expert_weights_scale", "moe_latent_size"),
    biases=("qkv",),
    experts="always",
    gating="sigmoid",
    renormalize=False,
    choice_bias="required",
    shared="key",
)

TINY = {"width": 64, "layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "tekken"}
TINY |= {"mixer": {"taps": 4, "heads": 6, "key_heads": 2, "key_dim": 8, "value_dim": 16}, "untied": True}
TINY |= {"experts": (8, 3, 32), "shared": 48}
TINY |= {"keys": {"attention.head_count_kv": [0, 0, 2, 0, 0], "feed_forward_length": [0, 96, 0, 0, 96]}}
TINY["keys"] |= {"expert_shared_feed_forward_length": 48, "expert_shared_count": 1, "expert_gating_func": 2}
TINY["keys"] |= {"expert_weights_norm": True, "expert_weights_scale": 2.5, "attention.layer_norm_epsilon": 1e-5}
