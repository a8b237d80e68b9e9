"""Phi-3.5 MoE: RMS norms that have biases, biases in attention and output, two experts of sixteen, long and short factors.

The original normalizes by LayerNorm and weights by a sparse mixer of its own; as llama.cpp does it, norms are RMS before the
bias is added and the weights are softmax numbers, renormalized.
"""

from .spec import Family

FAMILY = Family(
    norm="rms+bias", biases=("qkv", "attn_output", "output"), rope_factors=("always long",), output="required", experts="always"
)

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 48, "tokenizer": "spm"}
TINY |= {"biases": ("attn_q", "attn_k", "attn_v", "attn_output", "output"), "untied": True, "experts": (6, 2, 48)}
TINY |= {"factors": ("rope_factors_long", "rope_factors_short")}
TINY |= {"keys": {"rope.scaling.attn_factor": 1.19, "rope.scaling.original_context_length": 64}}
