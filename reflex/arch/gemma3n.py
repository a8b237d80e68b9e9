"""Gemma 3n, E2B and E4B: four residual streams, a low-rank path around attention, sparse gates, shared keys and values.

The logits are capped, and every layer has a small embedding of the token of its own. Values are normed without weights.
"""

from . import gemma4

FAMILY = gemma4.FAMILY.but(
    keys_as_values=False, rope_factors=(), window_every=5, out_scale=False, experts="never", beside=False, sparse=True, streams=True
)

TINY = {"width": 64, "layers": 22, "heads": 4, "kv_heads": 2, "head_dim": 16, "feed_forward": 96, "tokenizer": "spm"}
TINY |= {"embed_std": 0.6, "inputs": 256, "owners": 20, "keeps_keys": True, "streams": True, "branch": 0.5}
TINY |= {"keys": {"rope.freq_base": 1e6, "attention.sliding_window": 16, "attention.shared_kv_layers": 2}}
TINY["keys"] |= {"attention.key_length": 16, "attention.value_length": 16, "final_logit_softcapping": 30.0}
TINY["keys"] |= {"activation_sparsity_scale": [1.6448533535003662] * 10 + [float("-inf")] * 12}
TINY["keys"] |= {"altup.num_inputs": 4, "altup.active_idx": 0, "rope.freq_base_swa": 5000.0}
