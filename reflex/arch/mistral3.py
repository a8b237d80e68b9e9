"""Mistral Small 3.1 and later, Ministral 3, Devstral 2: as llama, and the YaRN keys of the file count.

attention.temperature_scale, by which queries grow with the position, is refused unless it is 0.
"""

from .spec import Family

FAMILY = Family(rope="norm", rope_keys=True, rope_factors=("freqs", "long"))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 24, "feed_forward": 96, "tokenizer": "tekken"}
TINY |= {
    "untied": True,
    "keys": {
        "rope.freq_base": 1e6,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32,
        "rope.scaling.yarn_beta_fast": 2.0,
        "rope.scaling.yarn_beta_slow": 0.25,
        "rope.scaling.yarn_log_multiplier": 0.7,
    },
}
