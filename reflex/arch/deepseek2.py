"""DeepSeek V2, V3 and R1, Kimi K2, Moonlight, GLM-4.7 Flash: latent attention, experts chosen in groups, leading dense layers.

Without the key expert_gating_func the weights of experts are a softmax, as in V2.
"""

from .spec import Family

FAMILY = Family(
    latent="same strength",
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

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 1, "head_dim": 24, "feed_forward": 96, "tokenizer": "deepseek-v3"}
TINY |= {"latent": (32, 8, 16), "q_rank": 24, "untied": True, "dense": 1}  # compressed, rotated, of a value; of compressed queries
TINY |= {"experts": (8, 3, 32), "shared": 64, "choice_bias": True}
TINY |= {"keys": {"expert_gating_func": 2, "expert_shared_count": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5}}
TINY["keys"] |= {"expert_group_count": 4, "expert_group_used_count": 2}
TINY["keys"] |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 64}
TINY["keys"] |= {"rope.scaling.yarn_log_multiplier": 0.0707}
