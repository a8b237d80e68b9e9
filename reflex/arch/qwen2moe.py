"""Qwen 1.5 MoE and Qwen 2 57B-A14B: Qwen 2's attention, weights that are not renormalized, a shared expert behind a sigmoid."""

from .spec import Family

FAMILY = Family(output="required", experts="always", renormalize=False, split_width=True, shared="key or dense", shared_gate=True)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 120, "tokenizer": "qwen2"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v"), "untied": True, "experts": (8, 3, 40), "shared": 48}
TINY |= {"keys": {"rope.freq_base": 1e6, "expert_shared_feed_forward_length": 48}}
