"""Granite 3.x and 4.0 dense: as llama with scaled embedding and branches, its own score scale, logits divided by a key.

Without rotation where rope.scaling.finetuned is false.
"""

from .spec import Family

FAMILY = Family(
    rope="norm",
    rope_factors=("freqs", "long"),
    keys=("embedding_scale", "residual_scale", "attention.scale", "rope.scaling.finetuned"),
    logit_scale="divide",
    biases=("qkv", "attn_output", "ffn"),
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "refact"}
TINY |= {"embed_std": 0.08, "keys": {"embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0, "attention.scale": 0.1}}
