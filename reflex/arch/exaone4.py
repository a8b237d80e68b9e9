"""EXAONE 4: norms behind attention and feed-forward only, head norms; 64 layers (32B) have windows and rotate in those alone.

The key attention.sliding_window counts in models of 64 layers only.
"""

from .spec import Family

FAMILY = Family(
    attn_norm=None,
    attn_out_norm="post_attention_norm",
    ffn_norm=None,
    ffn_out_norm="post_ffw_norm",
    head_norm="rms",
    rope_on="windowed if any",
    rope_factors=("freqs",),
    window_if="always",
    window_layers=64,
    window=4096,
    window_every=4,
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "exaone4"}
TINY |= {"factors": ("rope_freqs",), "keys": {"rope.freq_base": 1e6, "attention.sliding_window": 16}}
