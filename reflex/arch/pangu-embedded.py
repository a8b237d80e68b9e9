"""openPangu Embedded 1B and 7B: Qwen 2's block with a fourth bias, on the output of attention."""

from .spec import Family

FAMILY = Family(biases=("qkv", "attn_output"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 144, "tokenizer": "spm"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v", "attn_output")}
