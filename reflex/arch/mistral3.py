"""Mistral Small 3.1 and later, Ministral 3, Devstral 2: as llama, and the YaRN keys of the file count.

Queries grow with the logarithm of the position where attention.temperature_scale says so.
"""

from .spec import Family

YARN = ("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier")
FAMILY = Family(
    rope="norm", keys=("attention.temperature_scale", *YARN), rope_factors=("freqs", "long"), biases=("qkv", "attn_output", "ffn")
)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "tekken"}
TINY |= {
    "untied": True,
    "keys": {
        "attention.temperature_scale": 0.4,
        "rope.freq_base": 1e6,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 40,
        "rope.scaling.yarn_beta_fast": 0.8,
        "rope.scaling.yarn_beta_slow": 0.25,
        "rope.scaling.yarn_log_multiplier": 0.7,
    },
}
