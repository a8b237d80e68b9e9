"""Gemma 2: four norms per block, every other layer windowed, soft caps on scores and logits even when no key says so.

The stored norm weights already contain the +1. 46 layers (27B) scale the scores by the width of a head, not by key_length.
"""

from .spec import Family

FAMILY = Family(
    attn_out_norm="post_attention_norm",
    ffn_out_norm="post_ffw_norm",
    window_if="always",
    window=4096,
    window_every=2,
    window_base="base",
    scale_by_width=46,
    attn_softcap=50.0,
    final_softcap=30.0,
    embed_scale="sqrt width",
    act="gelu",
    output="tied",
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"embed_std": 0.12, "keys": {"attention.sliding_window": 16, "rope.freq_base_swa": 500.0}}
TINY["keys"] |= {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 1.5}
