"""GLM-4-0414 and GLM-OCR text: four norms per block, fused gate and up, half of each head rotates, optional biases.

Adjacent pairs rotate, half-split ones in vision files (rope.dimension_sections). Trailing draft layers do not run.
"""

from .spec import Family

FAMILY = Family(
    attn_out_norm="post_attention_norm", ffn_out_norm="post_ffw_norm", rope="norm", keys=("rope.dimension_sections",), gate="fused"
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "glm4"}
TINY |= {"untied": True, "keys": {"rope.dimension_count": 12}}
