"""dots.llm1, 142B-A14B: head norms, one leading dense layer, the two shared experts lie in one.

Multi-head attention without groups of queries. The keys say how the weights of the 128 routed experts are made;
exp_probs_b is optional.
"""

from .spec import Family

FAMILY = Family(
    head_norm="rms",
    output="required",
    keys=("expert_weights_norm", "expert_weights_scale", "expert_gating_func"),
    experts="always",
    gating=None,
    renormalize=False,
    choice_bias="optional",
    shared="count",
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 112, "tokenizer": "qwen2"}
TINY |= {"untied": True, "dense": 1}
TINY |= {"experts": (8, 3, 24), "shared": 48, "choice_bias": True}
TINY |= {"keys": {"expert_gating_func": 2, "expert_weights_scale": 2.5, "expert_weights_norm": True}}
TINY["keys"] |= {"expert_shared_count": 2}
