"""AFM with experts, Trinity: norms before and behind, head norms, gated attention, windows; every fourth layer does not rotate."""

from .spec import Family

FAMILY = Family(
    attn_out_norm="post_attention_norm",
    ffn_out_norm="post_ffw_norm",
    head_norm="rms",
    out_gate="elements",
    rope_on="not every 4th",
    window_if="always",
    window_every=4,
    embed_scale="sqrt width",
    keys=("expert_gating_func", "expert_weights_norm", "expert_weights_scale"),
    experts="always",
    gating="sigmoid",
    renormalize=False,
    choice_bias="required",
    shared="count",
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "afmoe"}
TINY |= {"untied": True, "embed_std": 0.12, "dense": 1, "experts": (8, 3, 32), "shared": 32, "choice_bias": True, "out_gate": True}
TINY |= {"keys": {"expert_shared_count": 1, "expert_weights_norm": True, "expert_weights_scale": 2.5}}
TINY["keys"] |= {"attention.sliding_window": 16}
