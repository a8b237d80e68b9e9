"""Nemotron-4, Minitron: LayerNorm whose weights already contain the +1, squared ReLU without a gate, half of each head rotates."""

from .spec import Family

FAMILY = Family(norm="layer+bias", act="relu2", gate=None, output="required", biases=("qkv", "attn_output", "ffn"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 120, "tokenizer": "spm"}
TINY |= {"untied": True, "keys": {"rope.dimension_count": 8}}
