"""ERNIE 4.5 with experts, 21B-A3B and 300B-A47B: as ernie4_5; every n-th layer behind the leading dense ones routes.

exp_probs_b is optional and only chooses.
"""

from .spec import Family

FAMILY = Family(rope="norm", experts="always", choice_bias="optional", shared="key")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 1, "head_dim": 24, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"experts": (8, 3, 32), "shared": 48, "dense": 1, "choice_bias": True}
TINY |= {"keys": {"rope.freq_base": 5e5, "expert_shared_feed_forward_length": 48, "interleave_moe_layer_step": 1}}
