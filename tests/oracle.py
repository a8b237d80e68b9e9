"""A second opinion on real models: a float32 numpy forward pass of four architectures that shares nothing with Reflex.

Weights are dequantized by the `gguf` package and multiplied as they are, without the rounding of activations that makes
llama.cpp differ from itself by up to 0.3 standard deviations. Written for reading, one function per idea; it holds a whole
model in float32. Only what the test models need: no rotary scaling but rope_freqs, no biases but those of q, k and v.
"""

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

ADJACENT_PAIRS = ("llama",)  # the other architectures rotate halves
SANDWICHED = ("gemma3",)  # norms on both sides, scaled embedding, GELU, windowed layers


class Oracle:
    def __init__(self, path):
        reader = GGUFReader(str(path))
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.fields = reader.fields
        self.architecture = self.fields["general.architecture"].contents()
        self.arrays = {}

    def number(self, name, default=None):
        field = self.fields.get(f"{self.architecture}.{name}")
        return default if field is None else field.contents()

    def weight(self, name):
        if name not in self.arrays:
            tensor = self.tensors[name]
            values = dequantize(tensor.data, tensor.tensor_type)
            self.arrays[name] = np.asarray(values, np.float32).reshape([int(n) for n in reversed(tensor.shape)])
        return self.arrays[name]

    def project(self, x, name):
        y = x @ self.weight(name + ".weight").T
        return y + self.weight(name + ".bias") if name + ".bias" in self.tensors else y

    def norm(self, x, name):
        eps = np.float32(self.number("attention.layer_norm_rms_epsilon"))
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * self.weight(name + ".weight")

    def turn(self, x, base):
        """Rotary embedding of x [tokens, heads, size] at positions 0, 1, ..."""
        half = x.shape[-1] // 2
        speed = np.float64(base) ** -(np.arange(half) / half)
        if "rope_freqs.weight" in self.tensors:
            speed = speed / self.weight("rope_freqs.weight")
        angle = np.arange(len(x))[:, None, None] * speed
        wheel = np.exp(1j * angle).astype(np.complex64)
        if self.architecture in ADJACENT_PAIRS:
            turned = (x[..., 0::2] + 1j * x[..., 1::2]) * wheel
            return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
        turned = (x[..., :half] + 1j * x[..., half:]) * wheel
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def mask(self, count, windowed):
        """What each token may not see: 0 or minus infinity, [tokens, tokens]."""
        ago = np.subtract.outer(np.arange(count), np.arange(count))
        hidden = ago < 0
        if windowed:
            hidden |= ago >= self.number("attention.sliding_window")
        return np.where(hidden, np.float32(-np.inf), np.float32(0))

    def attend(self, h, block, windowed):
        heads = self.number("attention.head_count")
        groups = self.number("attention.head_count_kv", heads)
        q, k, v = (self.project(h, block + name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = q.reshape(len(h), heads, -1), k.reshape(len(h), groups, -1), v.reshape(len(h), groups, -1)
        if block + "attn_q_norm.weight" in self.tensors:
            q, k = self.norm(q, block + "attn_q_norm"), self.norm(k, block + "attn_k_norm")
        base = 10000.0 if windowed else self.number("rope.freq_base", 10000.0)
        q, k = self.turn(q, base), self.turn(k, base)
        out, mask = np.empty((len(h), heads, v.shape[-1]), np.float32), self.mask(len(h), windowed)
        for head in range(heads):
            group = head * groups // heads
            score = q[:, head] @ k[:, group].T / np.float32(np.sqrt(q.shape[-1])) + mask
            score = np.exp(score - score.max(axis=-1, keepdims=True))
            out[:, head] = score / score.sum(axis=-1, keepdims=True) @ v[:, group]
        return self.project(out.reshape(len(h), -1), block + "attn_output")

    def feed_forward(self, h, block):
        gate, up = self.project(h, block + "ffn_gate"), self.project(h, block + "ffn_up")
        if self.architecture in SANDWICHED:
            bent = np.tanh(np.float32(np.sqrt(2 / np.pi)) * gate * (1 + np.float32(0.044715) * gate * gate))
            return self.project(gate / 2 * (1 + bent) * up, block + "ffn_down")
        return self.project(gate / (1 + np.exp(-gate)) * up, block + "ffn_down")

    def logits(self, ids):
        """float32 [len(ids), vocabulary]: after every token."""
        sandwiched = self.architecture in SANDWICHED
        x = self.weight("token_embd.weight")[ids]
        if sandwiched:
            x = x * np.float32(np.sqrt(x.shape[-1]))
        for layer in range(self.number("block_count")):
            block, windowed = f"blk.{layer}.", sandwiched and layer % 6 != 5
            out = self.attend(self.norm(x, block + "attn_norm"), block, windowed)
            x = x + (self.norm(out, block + "post_attention_norm") if sandwiched else out)
            out = self.feed_forward(self.norm(x, block + "ffn_norm"), block)
            x = x + (self.norm(out, block + "post_ffw_norm") if sandwiched else out)
        head = "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
        return self.norm(x, "output_norm") @ self.weight(head).T
