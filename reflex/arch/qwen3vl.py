"""Qwen 3-VL dense, the text half: Qwen 3; a text has one position in all sections of rope.dimension_sections."""

from .spec import Family

FAMILY = Family(head_norm="rms")

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"keys": {"rope.freq_base": 5e6, "rope.dimension_sections": [4, 4, 4, 0], "n_deepstack_layers": 3}}
