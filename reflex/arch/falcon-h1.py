"""Falcon-H1, 0.5B to 34B: attention and a Mamba-2 scan side by side in every layer.

The norm before the feed-forward is a tensor without a suffix.
"""

from .spec import Family

FAMILY = Family(mixer="scan", mixer_in="beside", scan_norm="optional", biases=("qkv", "ffn"))

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "falcon-h1"}
TINY |= {"mixer": {"taps": 4, "heads": 6, "key_heads": 2, "key_dim": 8, "value_dim": 16}, "untied": True}
