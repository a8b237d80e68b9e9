"""DeepSeek V1, the 16B with experts: multi-head attention, one leading dense layer, two shared experts in one."""

from .spec import Family

FAMILY = Family(rope="norm", keys=("expert_weights_scale",), experts="always", renormalize=False, shared="count")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 96, "tokenizer": "deepseek-llm"}
TINY |= {"untied": True, "experts": (8, 3, 32), "shared": 64, "dense": 1}
TINY |= {"keys": {"expert_shared_count": 2, "expert_weights_scale": 1.5}}
