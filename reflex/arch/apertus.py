"""Apertus 8B and 70B: head norms, half-split rotation, xIELU without a gate; its numbers are keys, one per layer."""

from .spec import Family

FAMILY = Family(
    head_norm="rms", rope_factors=("freqs", "long"), act="xielu", gate=None, biases=("qkv", "attn_output"), output="required"
)

TINY = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 112, "tokenizer": "tekken"}
TINY |= {"untied": True, "factors": ("rope_freqs",)}
TINY["keys"] = {
    "/xielu.alpha_p": [0.5, 1.1],
    "/xielu.alpha_n": [0.3, -0.2],
    "/xielu.beta": [0.5, 0.4],
    "/xielu.eps": [-1e-6, -1e-6],
}
