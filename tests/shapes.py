"""Model files of real sizes that take no space: headers with the tensors of known models, and holes where their data would be."""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter

Q4_K, Q6_K = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K
SHAPES = {  # layers, width, feed-forward, heads, key heads, size of a head, vocabulary
    "0.6B": (28, 1024, 3072, 16, 8, 128, 151936),
    "4B": (36, 2560, 9728, 32, 8, 128, 151936),
    "8B": (36, 4096, 12288, 32, 8, 128, 151936),
    "32B": (64, 5120, 25600, 64, 8, 128, 151936),
}


def write(name, path):
    """A Qwen3 of one of SHAPES as Q4_K with Q6_K among it, as files are quantized; its weights read as zeros."""
    layers, width, hidden, heads, kv_heads, size, vocabulary = SHAPES[name]
    writer = GGUFWriter(str(path), "qwen3")
    keys = {
        "context_length": 40960,
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": hidden,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": size,
        "attention.value_length": size,
    }
    for key, value in keys.items():
        writer.add_uint32(f"qwen3.{key}", value)
    writer.add_float32("qwen3.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("qwen3.rope.freq_base", 1e6)
    total = 0

    def add(tensor, shape, kind):
        nonlocal total
        elements, nbytes = GGML_QUANT_SIZES[kind] if kind is not None else (1, 4)
        count = int(np.prod(shape)) // elements * nbytes
        row = shape if kind is None else (*shape[:-1], shape[-1] // elements * nbytes)
        dtype = np.dtype(np.float32 if kind is None else np.uint8)
        writer.add_tensor_info(tensor, row, dtype, count, raw_dtype=kind)
        total += -(-count // 32) * 32

    add("output.weight", (vocabulary, width), Q6_K)
    add("token_embd.weight", (vocabulary, width), Q4_K)
    add("output_norm.weight", (width,), None)
    for layer in range(layers):
        mixed = Q6_K if layer % 3 == 2 else Q4_K
        for part in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{part}.weight", (width,), None)
        for part in ("attn_q_norm", "attn_k_norm"):
            add(f"blk.{layer}.{part}.weight", (size,), None)
        add(f"blk.{layer}.attn_q.weight", (heads * size, width), Q4_K)
        add(f"blk.{layer}.attn_k.weight", (kv_heads * size, width), Q4_K)
        add(f"blk.{layer}.attn_v.weight", (kv_heads * size, width), mixed)
        add(f"blk.{layer}.attn_output.weight", (width, heads * size), Q4_K)
        add(f"blk.{layer}.ffn_gate.weight", (hidden, width), Q4_K)
        add(f"blk.{layer}.ffn_up.weight", (hidden, width), Q4_K)
        add(f"blk.{layer}.ffn_down.weight", (width, hidden), mixed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "r+b") as file:
        end = file.seek(0, 2)
        file.truncate(-(-end // 32) * 32 + total)
    return path
