"""Qwen 2-VL and 2.5-VL, the text half: Qwen 2; a text has one position in all sections of rope.dimension_sections."""

from .spec import Family

FAMILY = Family()

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v"), "untied": True, "keys": {"rope.dimension_sections": [2, 3, 3, 0]}}
