"""MiMo V2 Flash, 309B-A15B: values smaller than keys, windows with sinks, part of a head rotates, sigmoid routing."""

from . import step35

FAMILY = step35.FAMILY.but(
    head_norm=None,
    head_norm_if="always",
    out_gate=None,
    rope_factors=(),
    rope_share=1.0,
    sinks="optional",
    keys=("attention.value_scale",),
    renormalize=True,
    shared=None,
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"untied": True, "value_dim": 12, "sinks": (1, 2), "dense": 1, "experts": (8, 3, 32), "choice_bias": True}
TINY |= {"keys": {"attention.value_scale": 0.7, "attention.sliding_window": 16, "rope.freq_base_swa": 5000.0}}
TINY["keys"] |= {"attention.sliding_window_pattern": [False, True, True, False], "rope.dimension_count": 8, "rope.freq_base": 5e6}
TINY["keys"] |= {"attention.head_count_kv": [2, 2, 2, 2]}
