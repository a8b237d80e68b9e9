"""StarCoder 1 and SantaCoder: GPT-2's block with one key and value head for all queries."""

from .spec import Family

FAMILY = Family(positions=True, rope=None, norm="layer+bias", act="gelu", gate=None, biases=("qkv", "attn_output", "ffn"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 1, "head_dim": 16, "feed_forward": 128, "tokenizer": "starcoder"}
TINY |= {"untied": True, "fused": True, "biases": ("attn_qkv", "attn_output", "ffn_up", "ffn_down")}
