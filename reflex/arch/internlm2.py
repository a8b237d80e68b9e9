"""InternLM 2, 2.5 and 3: Llama's block with an output matrix of its own, always.

The converter splits the interleaved wqkv of the original and permutes the rows of q and k for adjacent pairs.
"""

from .spec import Family

FAMILY = Family(rope="norm", output="required")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"untied": True, "keys": {"rope.freq_base": 1e6}}
