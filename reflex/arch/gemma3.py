"""Gemma 3 text: four norms per block, head norms, windowed layers with their own rotation, scaled embedding, GELU.

The stored norm weights already contain the +1. 62 layers (27B) scale the scores by the width of a head, not by key_length.
"""

from .spec import Family

FAMILY = Family(
    attn_out_norm="post_attention_norm",
    ffn_out_norm="post_ffw_norm",
    head_norm="rms",
    window_if="key",
    window_every=6,
    window_base=10000.0,
    window_scaled=False,
    scale_by_width=62,
    final_softcap=0.0,
    embed_scale="sqrt width",
    act="gelu",
)

TINY = {"width": 64, "layers": 7, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"embed_std": 0.12, "keys": {"rope.freq_base": 1e6, "attention.sliding_window": 16}}
TINY["keys"] |= {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
