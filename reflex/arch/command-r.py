"""Command R, R+, Aya: attention and feed-forward both read one LayerNorm without bias; logits times a key, tied embedding.

The models of 64 layers have a LayerNorm on every head of q and k, with weights per head.
"""

from .spec import Family

FAMILY = Family(
    norm="layer", ffn_norm="attn_norm", head_norm="layer", head_norm_if="stored", rope="norm", logit_scale="multiply", output="tied"
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "command-r"}
TINY |= {"keys": {"logit_scale": 0.0625, "rope.freq_base": 8e6, "rope.scaling.type": "none", "rope.scaling.factor": 4.0}}
