"""Ling lite, plus and coder, first version: adjacent pairs rotate, softmax routing, the shared experts lie in one."""

from .spec import Family

FAMILY = Family(
    rope="norm",
    output="required",
    keys=("expert_weights_norm", "expert_weights_scale"),
    experts="always",
    renormalize=False,
    shared="count",
)

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "bailingmoe"}
TINY |= {"untied": True, "experts": (8, 3, 32), "shared": 64}
TINY |= {"keys": {"expert_shared_count": 2, "expert_weights_norm": True, "expert_weights_scale": 1.5}}
