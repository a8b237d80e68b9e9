"""Orion 14B: Llama's gated block with LayerNorm, half-split rotation, an output matrix of its own."""

from .spec import Family

FAMILY = Family(norm="layer+bias", output="required")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 88, "tokenizer": "spm"}
TINY |= {"untied": True}
