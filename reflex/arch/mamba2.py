"""Mamba-2, 130M to 2.7B, Codestral Mamba: every layer is a state-space scan and nothing else; no attention, no feed-forward."""

from .spec import Family

FAMILY = Family(rope=None, mixer="scan", mixer_in="all")

TINY = {"width": 64, "layers": 3, "heads": 0, "kv_heads": 0, "head_dim": 0, "feed_forward": 0, "tokenizer": "olmo"}
TINY |= {"mixer": {"taps": 4, "heads": 8, "key_heads": 2, "key_dim": 8, "value_dim": 16}, "untied": True}
