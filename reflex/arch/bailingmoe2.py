"""Ling and Ring 2.0: fused q, k, v, head norms, half of a head rotates, sigmoid routing in groups of experts.

Of the groups with the largest sums of two best experts only some are candidates; exp_probs_b chooses and does not weigh.
The last layers may be a draft head, which does not run.
"""

from .spec import Family

FAMILY = Family(
    head_norm="rms",
    output="required",
    keys=("expert_gating_func", "expert_weights_norm", "expert_weights_scale"),
    experts="always",
    gating=None,
    renormalize=False,
    choice_bias="optional",
    shared="count of key",
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 128, "tokenizer": "bailingmoe2"}
TINY |= {"fused": True, "untied": True, "dense": 1}
TINY |= {"experts": (8, 3, 32), "shared": 32, "choice_bias": True}
TINY |= {"keys": {"rope.dimension_count": 8, "expert_gating_func": 2, "expert_shared_count": 1, "expert_weights_norm": True}}
TINY["keys"] |= {"expert_weights_scale": 2.5, "expert_group_count": 4, "expert_group_used_count": 2}
