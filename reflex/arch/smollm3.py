"""SmolLM 3: every fourth layer does not rotate (NoPE), which no key of the file says; the others rotate adjacent pairs.

The embedding is the output too.
"""

from .spec import Family

FAMILY = Family(rope="norm", rope_on="not every 4th")

TINY = {"width": 64, "layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 128, "tokenizer": "smaug"}
TINY |= {"keys": {"rope.freq_base": 5e6}}
