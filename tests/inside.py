"""Every named tap by a forward pass in float32 numpy that shares nothing with Reflex, for tiny models of some families.

tests/oracle.py has the parts; here they are put together so that each intermediate value is kept, and so that the residual stream,
the heads or the pattern can be replaced on the way.
"""

import numpy as np
from oracle import Oracle

FAMILIES = ("llama-smollm", "qwen3", "gemma3", "qwen3moe", "command-r")  # dense, head norms, post norms, experts, parallel


class Inside(Oracle):
    def __init__(self, path):
        super().__init__(path)
        self.parallel = self.architecture == "command-r"
        self.sandwiched = self.architecture == "gemma3"

    def norm(self, x, name):
        if not self.parallel:
            return super().norm(x, name)
        x = x - x.mean(axis=-1, keepdims=True)
        eps = np.float32(self.number("attention.layer_norm_epsilon"))
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * self.weight(name + ".weight")

    def turn(self, x, base, slower=1.0):
        """Rotary embedding of x [tokens, heads, size]; in pairs of neighbours or of halves."""
        half = x.shape[-1] // 2
        wheel = np.exp(1j * np.arange(len(x))[:, None, None] / slower * np.float64(base) ** -(np.arange(half) / half))
        neighbours = self.architecture in ("llama", "command-r")
        one, other = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
        turned = ((one + 1j * other) * wheel).astype(np.complex64)
        parts = [turned.real, turned.imag]
        return np.stack(parts, axis=-1).reshape(x.shape) if neighbours else np.concatenate(parts, axis=-1)

    def patterns(self, h, block, windowed):
        """Attention patterns [heads, tokens, tokens], and values [tokens, kv_heads, size]."""
        heads = self.number("attention.head_count")
        groups = self.number("attention.head_count_kv", heads)
        q, k, v = (self.project(h, block + name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = q.reshape(len(h), heads, -1), k.reshape(len(h), groups, -1), v.reshape(len(h), groups, -1)
        if block + "attn_q_norm.weight" in self.tensors:
            q, k = self.norm(q, block + "attn_q_norm"), self.norm(k, block + "attn_k_norm")
        slower = self.number("rope.scaling.factor", 1.0) if self.sandwiched and not windowed else 1.0
        base = 10000.0 if windowed else self.number("rope.freq_base", 10000.0)
        q, k = self.turn(q, base, slower), self.turn(k, base, slower)
        found = []
        for head in range(heads):
            score = q[:, head] @ k[:, head * groups // heads].T / np.float32(np.sqrt(q.shape[-1])) + self.mask(len(h), windowed)
            score = np.exp(score - score.max(axis=-1, keepdims=True))
            found.append(score / score.sum(axis=-1, keepdims=True))
        return np.array(found), v

    def mixture(self, h, block):
        """(output of a mixture of experts, experts [tokens, used], weights [tokens, used])."""
        logits = h @ self.weight(block + "ffn_gate_inp.weight").T
        share = np.exp(logits - logits.max(axis=-1, keepdims=True))
        share /= share.sum(axis=-1, keepdims=True)
        experts = np.argsort(-share, axis=-1, kind="stable")[:, : self.number("expert_used_count")]
        weights = np.take_along_axis(share, experts, axis=-1)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        out = np.zeros_like(h)
        for row in range(len(h)):
            for expert, weight in zip(experts[row], weights[row], strict=True):
                gate, up, down = (self.weight(f"{block}ffn_{part}_exps.weight")[expert] for part in ("gate", "up", "down"))
                g = gate @ h[row]
                out[row] += weight * (down @ (g / (1 + np.exp(-g)) * (up @ h[row])))
        return out, experts, weights

    def forward(self, ids, change=lambda name, value: value):
        """{tap: value} of a text. `change` may return another value for a tap, with which everything behind goes on."""
        taps = {}

        def tap(name, value):
            taps[name] = change(name, value)
            return taps[name]

        x = self.weight("token_embd.weight")[ids]
        x = tap("embedding", x * np.float32(np.sqrt(x.shape[-1])) if self.sandwiched else x)
        for layer in range(self.number("block_count")):
            x = self.block(x, layer, lambda word, value, layer=layer: tap(f"layers.{layer}.{word}", value))
        x = tap("final_norm", self.norm(x, "output_norm"))
        head = "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
        tap("logits", x @ self.weight(head).T * np.float32(self.number("logit_scale", 1.0)))
        return taps

    def block(self, x, layer, tap):
        block, windowed = f"blk.{layer}.", self.sandwiched and layer % 6 != 5
        x = tap("residual_in", x)
        h = self.norm(x, block + "attn_norm")
        pattern, v = self.patterns(h, block, windowed)
        pattern = tap("attention", pattern)
        heads = np.stack([p @ v[:, i * v.shape[1] // len(pattern)] for i, p in enumerate(pattern)], axis=1)
        out = self.project(tap("heads", heads).reshape(len(x), -1), block + "attn_output")
        x = x + tap("attention_out", self.norm(out, block + "post_attention_norm") if self.sandwiched else out)
        h = h if self.parallel else self.norm(x, block + "ffn_norm")
        if block + "ffn_gate_inp.weight" in self.tensors:
            out, experts, weights = self.mixture(h, block)
            tap("router", np.rec.fromarrays([experts, weights], names="expert,weight"))
        else:
            out = self.feed_forward(h, block)
        return tap("residual_out", x + tap("feed_forward", self.norm(out, block + "post_ffw_norm") if self.sandwiched else out))
