"""AFM 4.5B: Llama's block with a squared ReLU and no gate."""

from .spec import Family

FAMILY = Family(rope="norm", rope_factors=("freqs",), act="relu2", gate=None)

TINY = {"width": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 144, "tokenizer": "llama-bpe"}
TINY |= {"untied": True}
