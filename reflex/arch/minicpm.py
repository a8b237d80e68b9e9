"""MiniCPM 1, 2 and 4: as llama with scaled embedding and branches, logits divided by a key; long and short rotary factors.

Files from before the three scale keys existed are refused: what stands in for them is not agreed upon.
"""

from .spec import Family

FAMILY = Family(rope="norm", rope_factors=("freqs", "long"), logit_scale="divide", keys=("embedding_scale", "residual_scale"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"embed_std": 0.08, "keys": {"embedding_scale": 12.0, "residual_scale": 0.7, "logit_scale": 4.0}}
