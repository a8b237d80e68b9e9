"""ERNIE 4.5 0.3B, the dense one: adjacent pairs rotate, and did so in the original; heads of 128 whatever the width.

A bias on the output of attention is refused: the original would add it, llama.cpp leaves it out. The models with experts have
an architecture name of their own.
"""

from .spec import Family

FAMILY = Family(rope="norm")

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 1, "head_dim": 24, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"keys": {"rope.freq_base": 5e5}}
