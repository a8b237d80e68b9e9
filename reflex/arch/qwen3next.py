"""Qwen3-Next and Qwen3-Coder-Next: as qwen35moe, and neighbouring value heads share a key head.

Older files have queries, keys, values and gates of the delta rule in one matrix, ssm_in.
"""

from . import qwen35moe

FAMILY = qwen35moe.FAMILY.but(key_order="grouped")

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"mixer": {"taps": 4, "heads": 4, "key_heads": 2, "key_dim": 16, "value_dim": 16, "joint": True}, "untied": True}
TINY |= {"experts": (8, 3, 32), "shared": 48, "keys": {"rope.dimension_count": 8, "rope.freq_base": 1e7}}
TINY["keys"] |= {"expert_shared_feed_forward_length": 48}
