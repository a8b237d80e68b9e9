"""GLM-4.5, 4.6 and Air: leading dense layers, sigmoid routing with a choosing bias, shared experts, half of a head rotates.

Air has no head norms. The last layers may be a draft head, which does not run. post_attention_norm is the norm before the
feed-forward.
"""

from .spec import Family

FAMILY = Family(
    ffn_norm="post_attention_norm",
    head_norm="rms",
    head_norm_if="stored",
    keys=("expert_gating_func", "expert_weights_norm", "expert_weights_scale"),
    experts="always",
    gating="sigmoid",
    renormalize=False,
    choice_bias="required",
    shared="count",
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "glm4"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v"), "untied": True, "dense": 1, "drafts": 1}
TINY |= {"experts": (8, 3, 32), "shared": 32, "head_norms": True}
TINY |= {"keys": {"rope.dimension_count": 16, "expert_shared_count": 1, "expert_weights_scale": 2.5, "expert_weights_norm": True}}
