"""Baichuan 1 and 2 of 7B, which is to say of 32 layers: Llama's block, the converter having split W_pack into q, k and v.

A file says nowhere that the 13B models have ALiBi instead of a rotation; llama.cpp tells them apart by the number of
layers, and so does this record: any other number is refused.
"""

from .spec import Family

FAMILY = Family(rope="norm", output="required", only_layers=32)

TINY = {"width": 64, "layers": 32, "heads": 4, "kv_heads": 4, "head_dim": 16, "feed_forward": 80, "tokenizer": "spm"}
TINY |= {"untied": True, "embed_std": 3.0}
