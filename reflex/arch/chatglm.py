"""ChatGLM 3 and GLM-4-9B-chat: fused q, k, v with a bias, fused gate and up, half of each head rotates."""

from .spec import Family

FAMILY = Family(rope="norm", gate="fused")

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "chatglm"}
TINY |= {"fused": True, "biases": ("attn_qkv",), "untied": True, "keys": {"rope.dimension_count": 8}}
