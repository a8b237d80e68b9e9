"""EXAONE 3 and 3.5: as llama with half-split rotation; its frequencies are divided by the tensor rope_freqs."""

from .spec import Family

FAMILY = Family(rope_factors=("freqs",))

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "exaone"}
TINY |= {"factors": ("rope_freqs",)}
