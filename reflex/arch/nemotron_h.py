"""Nemotron-H and Nemotron Nano 2: a block is one norm and one part, Mamba-2, attention or feed-forward.

Attention does not rotate; the feed-forward has a squared ReLU and no gate.
"""

from .spec import Family

FAMILY = Family(
    ffn_norm="attn_norm",
    rope=None,
    act="relu2",
    gate=None,
    mixer="scan",
    one_part=True,
    keys=("attention.layer_norm_epsilon",),
    biases=("qkv", "attn_output", "ffn"),
)

TINY = {"width": 64, "layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "default"}
TINY |= {"mixer": {"taps": 4, "heads": 6, "key_heads": 2, "key_dim": 8, "value_dim": 16}, "untied": True}
TINY |= {"keys": {"attention.head_count_kv": [0, 0, 2, 0, 0], "feed_forward_length": [0, 96, 0, 0, 96]}}
TINY["keys"] |= {"attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": 1e-5}
