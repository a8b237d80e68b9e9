"""GPT-NeoX, Pythia, Dolly: LayerNorm, a part of each head rotates, GELU without a gate, biases everywhere.

The feed-forward has a norm of its own but reads what attention read where use_parallel_residual says so.
"""

from .spec import Family

FAMILY = Family(norm="layer+bias", parallel="key", act="gelu", gate=None, output="required", biases=("qkv", "attn_output", "ffn"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 96, "tokenizer": "olmo"}
TINY |= {"fused": True, "biases": ("attn_qkv", "attn_output", "ffn_up", "ffn_down"), "untied": True}
TINY["keys"] = {"rope.dimension_count": 4, "use_parallel_residual": True}
