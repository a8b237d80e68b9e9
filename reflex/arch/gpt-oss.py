"""gpt-oss 20B and 120B: attention sinks, even layers windowed, YaRN, experts with biases and a clamped SwiGLU.

The weights are the softmax of the chosen logits alone. post_attention_norm is the norm before the feed-forward, of the sum.
"""

from .spec import Family

FAMILY = Family(
    ffn_norm="post_attention_norm",
    window_if="always",
    window_every=2,
    window_base="base",
    sinks="required",
    biases=("qkv", "attn_output", "experts"),
    act="swiglu_oai",
    output="required",
    experts="always",
    gating="softmax of chosen",
    renormalize=False,
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 32, "feed_forward": 64, "tokenizer": "gpt-4o"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v", "attn_output"), "untied": True}
TINY |= {"experts": (8, 3, 32), "expert_biases": True}
TINY |= {
    "keys": {
        "attention.sliding_window": 16,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 256,
    }
}
