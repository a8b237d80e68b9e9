"""Phi-3, 3.5, 4 and 4-mini: fused q, k, v and fused gate and up; long and short rotary factors; the window key is ignored.

The converters of the long-context models write the factors without a scaling type.
"""

from .spec import Family

FAMILY = Family(gate="fused", rope_factors=("always long",))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"fused": True, "untied": True, "keys": {"attention.sliding_window": 16}}
