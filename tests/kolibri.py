"""A forward pass of Kolibri 1 in float32 numpy, written from the description of the model: llama.cpp does not know it.

Every token attends over arrays of all earlier ones; nothing is shared with Reflex but the file. `rule` says how experts are chosen:
"kolibri" by the router's numbers plus the bias, "deepseek" by their sigmoid plus the bias.
"""

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Kolibri:
    def __init__(self, path, context=0, rule="kolibri"):
        reader = GGUFReader(str(path))
        self.rule = rule
        self.keys = {name: field.contents() for name, field in reader.fields.items()}
        self.weights = {t.name: dequantize(t.data, t.tensor_type).reshape([int(n) for n in t.shape[::-1]]) for t in reader.tensors}
        self.chosen = []  # experts of every layer and token

    def key(self, name, default=None):
        return self.keys.get("kolibri1." + name, default)

    def norm(self, x, name):
        eps = np.float32(self.key("attention.layer_norm_rms_epsilon"))
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.weights[name + ".weight"]

    def turn(self, x, base):
        """Rotation of x [tokens, heads, size]: dimension i with i + size/2."""
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None] * float(base) ** (-np.arange(half) / half)
        cos, sin = np.cos(angle).astype("f4")[:, None], np.sin(angle).astype("f4")[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def attention(self, h, block, windowed):
        tokens, heads, groups = len(h), self.key("attention.head_count"), self.key("attention.head_count_kv")
        q, k, v = (h @ self.weights[f"{block}attn_{role}.weight"].T for role in "qkv")
        q, k, v = q.reshape(tokens, heads, -1), k.reshape(tokens, groups, -1), v.reshape(tokens, groups, -1)
        q, k = self.norm(q, block + "attn_q_norm"), self.norm(k, block + "attn_k_norm")
        back = np.arange(tokens)[:, None] - np.arange(tokens)
        hidden = back < 0
        if windowed:
            base = self.key("rope.freq_base_swa", self.key("rope.freq_base", 10000.0))
            q, k = self.turn(q, base), self.turn(k, base)
            hidden |= back >= self.key("attention.sliding_window")
        out = []
        for head in range(heads):
            group = head * groups // heads
            score = q[:, head] @ k[:, group].T / np.float32(np.sqrt(q.shape[-1]))
            score = np.exp(np.where(hidden, -np.inf, score - score.max()))
            out.append(score / score.sum(-1, keepdims=True) @ v[:, group])
        return np.concatenate(out, -1) @ self.weights[block + "attn_output.weight"].T

    def unit(self, x, gate, up, down):
        g = x @ gate.T
        return (g * sigmoid(g) * (x @ up.T)) @ down.T

    def experts(self, f, block):
        matrices = [self.weights[f"{block}ffn_{role}_exps.weight"] for role in ("gate", "up", "down")]
        logits = f @ self.weights[block + "ffn_gate_inp.weight"].T
        ranked = logits if self.rule == "kolibri" else sigmoid(logits)
        order = np.argsort(-(ranked + self.weights[block + "exp_probs_b.bias"]), -1, kind="stable")
        chosen = order[:, : self.key("expert_used_count")]
        self.chosen.append(chosen)
        out = np.zeros_like(f)
        for row, own in enumerate(chosen):
            for e in own:
                out[row] += sigmoid(logits[row, e]) * self.unit(f[row], *(m[e] for m in matrices))
        return out + self.unit(f, *(self.weights[f"{block}ffn_{role}_shexp.weight"] for role in ("gate", "up", "down")))

    def logits(self, ids):
        """float32 [len(ids), vocabulary]: the logits after each token."""
        self.chosen = []
        x = self.weights["token_embd.weight"][ids]
        for layer, windowed in enumerate(self.key("attention.sliding_window_pattern")):
            block = f"blk.{layer}."
            attended = self.attention(self.norm(x, block + "attn_norm"), block, windowed)
            x = x + self.norm(attended, block + "post_attention_norm")
            x = x + self.norm(self.experts(self.norm(x, block + "ffn_norm"), block), block + "post_ffw_norm")
        return self.norm(x, "output_norm") @ self.weights["output.weight"].T

    def close(self):
        self.weights.clear()
