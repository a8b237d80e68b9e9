"""Command R7B and Command A: Command R's block without head norms; three of four layers have a window, and only they rotate.

A file without a window is refused. Its rope.freq_base_swa is of no effect: the windowed layers rotate by rope.freq_base.
"""

from .spec import Family

FAMILY = Family(
    norm="layer",
    ffn_norm="attn_norm",
    rope="norm",
    rope_on="windowed if any",
    window_if="always",
    window_every=4,
    logit_scale="multiply",
    output="tied",
)

TINY = {"width": 64, "layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "command-r"}
TINY |= {"keys": {"logit_scale": 0.25, "attention.sliding_window": 16, "rope.freq_base": 5e4, "rope.freq_base_swa": 500.0}}
