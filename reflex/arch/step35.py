"""Step 3.5 Flash, 196B-A11B: a gate for each head, windows with more heads, limits of activations, sigmoid routing.

Layers without a window rotate half as many dimensions, and only they are scaled by rope_freqs.
"""

from .spec import Family

FAMILY = Family(
    output="required",
    head_norm="rms",
    head_norm_if="stored",
    out_gate="heads",
    rope_factors=("full freqs",),
    rope_share=0.5,
    window_if="always",
    window_every=None,
    window_base=10000.0,
    keys=("expert_gating_func", "expert_weights_norm", "expert_weights_scale", "swiglu_clamp_exp", "swiglu_clamp_shexp"),
    experts="always",
    gating="sigmoid",
    renormalize=False,
    choice_bias="optional",
    shared="key",
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "qwen2"}
TINY |= {"untied": True, "dense": 1, "experts": (8, 3, 32), "shared": 48, "choice_bias": True, "out_gate": True, "head_norms": True}
TINY |= {"factors": ("rope_freqs",)}
TINY |= {"keys": {"attention.head_count": [4, 6, 6, 4], "attention.head_count_kv": [2, 2, 2, 2], "rope.freq_base_swa": 5000.0}}
TINY["keys"] |= {"attention.sliding_window": 16, "attention.sliding_window_pattern": [False, True, True, False]}
TINY["keys"] |= {"attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16}
TINY["keys"] |= {"expert_shared_feed_forward_length": 48, "expert_weights_norm": True, "expert_weights_scale": 2.5}
TINY["keys"] |= {"swiglu_clamp_exp": [0.0, 0.0, 0.4, 0.7], "swiglu_clamp_shexp": [0.3, 0.5, 0.0, 0.9]}
