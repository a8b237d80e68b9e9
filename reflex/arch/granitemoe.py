"""Granite 3.x with experts: as granite in its four scales, perhaps a shared expert; an expert is feed_forward_length wide."""

from .spec import Family

FAMILY = Family(
    rope="norm",
    rope_factors=("freqs", "long"),
    keys=("embedding_scale", "residual_scale", "attention.scale"),
    logit_scale="divide",
    experts="always",
    shared="key",
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 32, "tokenizer": "refact"}
TINY |= {"embed_std": 0.08, "experts": (8, 3, 32), "keys": {"embedding_scale": 12.0, "residual_scale": 0.4}}
TINY["keys"] |= {"logit_scale": 6.0, "attention.scale": 0.1}
