"""Qwen 3.5 dense: a gated delta rule in three of four layers, attention with head norms and gated heads in the others.

A quarter of each head rotates. post_attention_norm is the norm before the feed-forward. The last layers may be a draft head, which
does not run.
"""

from .spec import Family

FAMILY = Family(ffn_norm="post_attention_norm", head_norm="rms", query_gate=True, mixer="delta", mixer_in="interval")

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "qwen35"}
TINY |= {"mixer": {"taps": 4, "heads": 4, "key_heads": 2, "key_dim": 16, "value_dim": 16}, "drafts": 1}
TINY |= {"keys": {"rope.dimension_count": 8, "rope.freq_base": 1e7, "rope.dimension_sections": [2, 1, 1, 0]}}
