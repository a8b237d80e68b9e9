"""OLMo 2 and 3: norms behind attention and feed-forward only, q and k normed over all their heads together.

OLMo 3 has windows in three of four layers; those rotate without scaling, and by the same base as the others.
"""

from .spec import Family

FAMILY = Family(
    attn_norm=None,
    attn_out_norm="post_attention_norm",
    ffn_norm=None,
    ffn_out_norm="post_ffw_norm",
    head_norm="row rms",
    window_if="key",
    window_every=4,
    window_scaled=False,
    output="required",
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 104, "tokenizer": "dbrx"}
TINY |= {"untied": True, "keys": {"rope.freq_base": 5e5}}
