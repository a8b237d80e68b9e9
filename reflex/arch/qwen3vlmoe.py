"""Qwen 3 VL with experts, its text: as qwen3moe, since the three positions of a token are one in a text.

rope.dimension_sections divide the pairs among those positions; deep-stack inputs come with images only.
"""

from .spec import Family

FAMILY = Family(head_norm="rms", experts="always", split_width=True)

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 1, "head_dim": 32, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"untied": True, "experts": (6, 2, 48), "keys": {"rope.dimension_sections": [6, 5, 5, 0], "rope.freq_base": 5e6}}
