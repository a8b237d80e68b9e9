"""StarCoder 2: LayerNorm, half-split rotation, GELU without a gate, biases everywhere; no window, as in llama.cpp."""

from .spec import Family

FAMILY = Family(norm="layer+bias", act="gelu", gate=None, biases=("qkv", "attn_output", "ffn"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 80, "tokenizer": "starcoder"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"), "keys": {"rope.freq_base": 1e5}}
