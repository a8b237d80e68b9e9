"""MiMo V2 Flash, 309B-A15B: values smaller than keys, windows with sinks, part of a head rotates, sigmoid routing."""

from .spec import Family

FAMILY = Family(
    keys=("attention.value_scale",),
    sinks="optional",
    window_if="always",
    window_every=None,
    window_base=10000.0,
    experts="always",
    gating="sigmoid",
    choice_bias="optional",
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"untied": True, "value_dim": 12, "sinks": (1, 2), "dense": 1, "experts": (8, 3, 32), "choice_bias": True}
TINY |= {"keys": {"attention.value_scale": 0.7, "attention.sliding_window": 16, "rope.freq_base_swa": 5000.0}}
TINY["keys"] |= {"attention.sliding_window_pattern": [False, True, True, False], "rope.dimension_count": 8, "rope.freq_base": 5e6}
TINY["keys"] |= {"attention.head_count_kv": [2, 2, 2, 2]}
