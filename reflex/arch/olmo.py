"""OLMo 1: LayerNorm without weights, so no norm tensors at all; q, k and v clipped where attention.clamp_kqv says so."""

from .spec import Family

FAMILY = Family(norm="layer-weight", rope="norm", keys=("attention.clamp_kqv",))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 96, "tokenizer": "olmo"}
TINY |= {"keys": {"attention.clamp_kqv": 1.5}}
