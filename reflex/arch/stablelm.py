"""StableLM 3B, 2-1.6B and 2-12B: LayerNorm, a quarter of each head rotates, gated SiLU, biases on q, k and v in some.

A file without ffn_norm is a parallel one: the feed-forward reads attention's norm. Every head may have a LayerNorm of its own.
"""

from .spec import Family

FAMILY = Family(norm="layer+bias", ffn_norm=("ffn_norm", "attn_norm"), head_norm="layer", head_norm_if="stored", output="required")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 96, "tokenizer": "gpt2"}
TINY |= {"untied": True, "keys": {"rope.dimension_count": 4, "use_parallel_residual": True}}
