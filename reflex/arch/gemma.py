"""Gemma 1 and CodeGemma: pre-norm, embedding scaled by the root of the width, GELU; key_length is not width / heads.

The stored norm weights already contain the +1.
"""

from .spec import Family

FAMILY = Family(embed_scale="sqrt width", act="gelu", output="tied")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 1, "head_dim": 32, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"embed_std": 0.12}
