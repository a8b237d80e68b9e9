"""Mistral Small 4 and Large 3: the block of deepseek2, with YaRN's strength of the rotated dimensions being 1."""

from .spec import Family

FAMILY = Family(
    latent="strength 1",
    rope="norm",
    keys=(
        "attention.temperature_scale",
        "rope.scaling.yarn_log_multiplier",
        "expert_gating_func",
        "expert_weights_norm",
        "expert_weights_scale",
    ),
    biases=(),
    experts="always",
    renormalize=False,
    choice_bias="optional",
    shared="count",
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 1, "head_dim": 24, "feed_forward": 96, "tokenizer": "tekken"}
TINY |= {"latent": (32, 8, 16), "q_rank": 24, "untied": True, "dense": 1}
TINY |= {"experts": (8, 3, 32), "shared": 32}
TINY |= {"keys": {"expert_gating_func": 1, "expert_shared_count": 1, "expert_weights_norm": True, "expert_weights_scale": 1.5}}
TINY["keys"] |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 64}
TINY["keys"] |= {"rope.scaling.yarn_log_multiplier": 0.07}
TINY["keys"] |= {"attention.temperature_scale": 0.1, "attention.temperature_length": 8}
