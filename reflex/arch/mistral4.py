"""Mistral Small 4 and Large 3: the block of deepseek2, with YaRN's strength of the rotated dimensions being 1."""

from . import deepseek2

FAMILY = deepseek2.FAMILY.but(latent="strength 1")

TINY = {**deepseek2.TINY, "shared": 32, "choice_bias": False, "tokenizer": "tekken"}
TINY["keys"] = deepseek2.TINY["keys"] | {"expert_gating_func": 1, "expert_shared_count": 1, "expert_weights_scale": 1.5}
TINY["keys"] |= {"expert_group_count": 1}
TINY["keys"] |= {"attention.temperature_scale": 0.1, "attention.temperature_length": 8}
