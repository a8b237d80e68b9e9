"""LFM2, 350M to 2.6B: most layers are a gated short convolution, the others attention with head norms.

token_embd_norm is the last norm.
"""

from .spec import Family

FAMILY = Family(head_norm="rms", mixer="conv", output_norm="token_embd_norm")

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "lfm2"}
TINY |= {"mixer": {"taps": 3}, "keys": {"attention.head_count_kv": [0, 0, 2, 0], "rope.freq_base": 1e6, "vocab_size": 512}}
