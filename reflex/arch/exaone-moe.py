"""K-EXAONE 236B-A23B: head norms, three of four layers have a window and only they rotate, leading dense layers.

The last layers may be a draft head, which does not run. A rope.freq_base_swa is of no effect, as in llama.cpp.
"""

from . import dots1

FAMILY = dots1.FAMILY.but(rope_on="windowed", window_if="always", window_every=4, shared="key or routed")

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "exaone-moe"}
TINY |= {"untied": True, "dense": 1, "experts": (8, 3, 32), "shared": 48, "choice_bias": True}
TINY |= {"keys": {"expert_gating_func": 2, "expert_shared_count": 1, "expert_shared_feed_forward_length": 48}}
TINY["keys"] |= {"expert_weights_norm": True, "expert_weights_scale": 2.5, "attention.sliding_window": 16}
TINY["keys"] |= {"rope.freq_base": 1e6}
