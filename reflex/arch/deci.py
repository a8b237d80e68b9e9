"""DeciLM, Nemotron 51B, 49B and 253B: Llama's block, whose parts and sizes a search chose layer by layer.

A layer may have no attention, or attn_output alone in its place. One without feed-forward does not run at all, as in llama.cpp.
"""

from .spec import Family

FAMILY = Family(missing_parts=True, rope="norm", rope_factors=("freqs", "long"), biases=("qkv", "attn_output", "ffn"))

TINY = {"width": 64, "layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "llama-bpe"}
TINY |= {"untied": True, "keys": {"rope.freq_base": 5e5, "attention.head_count": [4, 0, 4, 4, 4]}}
TINY["keys"] |= {"attention.head_count_kv": [2, 0, 2, 0, 4], "feed_forward_length": [96, 96, 0, 96, 128]}
