"""Kolibri 1 of Aleph Alpha, 78B-A3.5B: norms before and behind, head norms, windows in which alone layers rotate.

Of the router's own numbers and a bias the largest choose; the weights are the sigmoid of the numbers without it, as they are.
"""

from .spec import Family

FAMILY = Family(
    attn_out_norm="post_attention_norm",
    ffn_out_norm="post_ffw_norm",
    head_norm="rms",
    rope_on="windowed",
    window_if="always",
    window_every=None,
    window_base="base",
    biases=(),
    output="required",
    experts="always",
    gating="sigmoid of chosen",
    renormalize=False,
    choice_bias="required",
    shared="key",
)

TINY = {"width": 64, "layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "kolibri1"}
TINY |= {"untied": True, "experts": (8, 3, 32), "shared": 32}
TINY |= {"keys": {"expert_gating_func": 5, "expert_shared_count": 1, "expert_shared_feed_forward_length": 32}}
TINY["keys"] |= {"attention.sliding_window": 17, "attention.sliding_window_pattern": [True, True, True, True, False]}
TINY["keys"] |= {"expert_weights_norm": False}
