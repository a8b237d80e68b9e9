"""OLMoE 1B-7B: norms over whole rows of q and k before the rotation; the weights of its experts do not sum to 1."""

from .spec import Family

FAMILY = Family(head_norm="row rms", output="required", experts="always", renormalize=False)

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 32, "tokenizer": "olmo"}
TINY |= {"untied": True, "experts": (8, 3, 32)}
