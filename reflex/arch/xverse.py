"""XVERSE 7B, 13B and 65B: multi-head attention without groups, rows of q and k permuted for adjacent pairs.

Embedding and output are separate matrices; nothing has a bias.
"""

from .spec import Family

FAMILY = Family(output="required", rope="norm")

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 160, "tokenizer": "spm"}
TINY |= {"untied": True}
