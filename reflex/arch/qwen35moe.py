"""Qwen 3.5 with experts: as qwen35, renormalized softmax weights, one shared expert with a gate of its own."""

from .spec import Family

FAMILY = Family(
    ffn_norm="post_attention_norm",
    head_norm="rms",
    query_gate=True,
    mixer="delta",
    mixer_in="interval",
    experts="always",
    shared="key or dense",
    shared_gate=True,
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "qwen35"}
TINY |= {"mixer": {"taps": 4, "heads": 6, "key_heads": 2, "key_dim": 24, "value_dim": 24}, "experts": (8, 3, 32), "shared": 48}
TINY |= {"keys": {"rope.dimension_count": 8, "rope.freq_base": 1e7, "rope.dimension_sections": [2, 1, 1, 0]}, "untied": True}
TINY["keys"] |= {"expert_shared_feed_forward_length": 48}
