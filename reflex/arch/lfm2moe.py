"""LFM2 with experts, 8B-A1B: as lfm2, sigmoid routing with a choosing bias behind the leading dense layers."""

from .spec import Family

FAMILY = Family(
    head_norm="rms",
    mixer="conv",
    output_norm="token_embd_norm",
    keys=("expert_gating_func",),
    experts="always",
    gating=None,
    choice_bias="required",
)

TINY = {"width": 64, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "lfm2", "dense": 1}
TINY |= {"mixer": {"taps": 3}, "keys": {"attention.head_count_kv": [0, 0, 2, 0], "rope.freq_base": 1e6, "vocab_size": 512}}
TINY |= {"experts": (8, 3, 32)}
TINY["keys"] |= {"expert_gating_func": 2}
