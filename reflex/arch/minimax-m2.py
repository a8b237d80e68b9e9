"""MiniMax M2: norms over whole rows of q and k before the rotation of half of each head, sigmoid routing with a choosing bias."""

from .spec import Family

FAMILY = Family(
    head_norm="row rms", output="required", experts="always", keys=("expert_gating_func",), gating=None, choice_bias="required"
)

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 32, "tokenizer": "minimax-m2"}
TINY |= {"untied": True, "experts": (8, 3, 32)}
TINY |= {"keys": {"rope.dimension_count": 16, "expert_gating_func": 2, "expert_feed_forward_length": 32}}
