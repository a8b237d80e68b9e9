"""GPT-2 and its kin: LayerNorm, learned positions that are added to the embedding, GELU without a gate, biases everywhere."""

from .spec import Family

FAMILY = Family(norm="layer+bias", positions=True, rope=None, act="gelu", gate=None, biases=("qkv", "attn_output", "ffn"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 96, "tokenizer": "gpt2"}
TINY |= {"fused": True, "biases": ("attn_qkv", "attn_output", "ffn_up", "ffn_down")}
