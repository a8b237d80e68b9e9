"""Gemma 4, E2B, E4B, 26B-A4B and 31B: four norms, two sizes of heads, layers that share keys and values.

Windowed layers have smaller heads and rotate all of them, the others a quarter. Where attn_v is missing values are keys before
their norm; all values are normed without weights. The small models have an embedding for every layer; experts run beside a dense
feed-forward, each with norms of its own.
"""

from .spec import Family

FAMILY = Family(
    attn_out_norm="post_attention_norm",
    ffn_out_norm="post_ffw_norm",
    head_norm="rms",
    unit_norm="v",
    keys_as_values=True,
    keys=("attention.shared_kv_layers",),
    rope_factors=("full freqs",),
    window_if="always",
    window_every=None,
    window_base=10000.0,
    attn_scale=1.0,
    final_softcap=30.0,
    embed_scale="sqrt width",
    act="gelu",
    inputs=True,
    out_scale=True,
    biases=(),
    experts="optional",
    beside=True,
)

TINY = {"width": 64, "layers": 6, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 96, "tokenizer": "gemma4"}
TINY |= {"embed_std": 0.12, "branch": 0.5, "factors": ("rope_freqs",), "window_head": 16, "inputs": 16, "owners": 4}
TINY |= {"out_scale": True}
TINY |= {"keys": {"rope.freq_base": 1e6, "rope.freq_base_swa": 5000.0, "attention.sliding_window": 16}}
TINY["keys"] |= {"attention.sliding_window_pattern": [True, True, True, False, True, False], "attention.shared_kv_layers": 2}
TINY["keys"] |= {"attention.head_count_kv": [2, 2, 2, 1, 2, 1], "feed_forward_length": [96, 96, 96, 96, 128, 128]}
TINY["keys"] |= {"final_logit_softcapping": 5.0}
