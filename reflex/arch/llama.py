"""Llama 1 to 3.x, Mistral up to 7B v0.3 and Nemo, Mixtral, TinyLlama, SmolLM2, Yi: pre-norm, gated SiLU, optional biases.

The converters permute the rows of q and k so that adjacent pairs rotate; attention.sliding_window is ignored.
"""

from .spec import Family

FAMILY = Family(rope="norm", rope_factors=("freqs", "long"), biases=("qkv", "attn_output", "ffn"), experts="optional")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "spm"}
