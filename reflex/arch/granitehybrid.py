"""Granite 4.0 hybrids, Bamba: most layers are a Mamba-2 scan, the others attention; dense or with experts; granite's four scales.

Without rotation where rope.scaling.finetuned is false.
"""

from . import granite

FAMILY = granite.FAMILY.but(rope_factors=(), mixer="scan", biases=("qkv", "attn_output"), experts="optional", shared="key")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 32, "tokenizer": "refact"}
TINY |= {"mixer": {"taps": 4, "heads": 8, "key_heads": 2, "key_dim": 8, "value_dim": 16}, "experts": (8, 3, 32), "shared": 48}
TINY |= {"embed_std": 0.3, "keys": {"attention.head_count_kv": [0, 2, 0], "attention.scale": 0.11, "embedding_scale": 1.5}}
TINY["keys"] |= {"residual_scale": 0.6, "logit_scale": 2.5, "expert_shared_feed_forward_length": 48}
