"""Llama 4 Scout and Maverick: three of four layers see chunks of 8192 positions and rotate, the others see all.

Queries of the layers that do not rotate grow with the logarithm of the position. The weight of an expert multiplies its input.
"""

from .spec import Family

FAMILY = Family(
    rope="norm",
    rope_on="windowed if any",
    rope_factors=("freqs",),
    unit_norm="q and k",
    window_if="key",
    window=8192,
    window_every=4,
    chunk=8192,
    temper=(0.1, 8192),
    experts="always",
    gating="sigmoid",
    renormalize=False,
    weight_input=True,
    shared="routed",
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "llama4"}
TINY |= {"untied": True, "experts": (4, 1, 32), "shared": 32, "every": 2, "keys": {"rope.freq_base": 5e5}}
