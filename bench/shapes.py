"""Model files of known shapes with random weights: `python bench/shapes.py qwen3moe-30b-a3b OUT`, for measuring speed.

Tensors, block formats and vocabulary have the sizes that the file of that name has as llama.cpp's Q4_K_M: Q4_K, with Q6_K for
the output and for attn_v and ffn_down of every layer that `finer` picks. Weights are random blocks whose scales give each
matrix a standard deviation near 1 / sqrt(inputs), so that activations stay in range: they cost what real ones do and say
nothing. A tile of such blocks is made once per format and scale and written over and over, from another place of it for
each tensor; several threads write, which makes 18 GB a matter of seconds where memory takes them. Needs numpy alone.

The vocabulary is made up, in size and number of merges as the model's; --vocabulary takes a real one: JSON compressed by xz,
with `pre`, `tokens`, `types`, `merges` and, where they are wanted, `bos`, `eos` and `chat_template`.
"""

import argparse
import json
import lzma
import mmap
import os
import struct
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy

F32, Q4_K, Q6_K = 0, 12, 14
BLOCK, NBYTES = 256, {Q4_K: 144, Q6_K: 210}  # values and bytes of a block
TILE = 40009  # blocks; prime, so that no tensor repeats with the period of its rows
PIECE = 32 << 20  # bytes that one thread writes at a time
THREADS = min(16, os.cpu_count() or 1)
ALIGNMENT = 32
SHAPES = {  # architecture, layers, width, feed-forward, heads, key heads, (experts, used, width of one), tied
    "qwen3-0.6b": ("qwen3", 28, 1024, 3072, 16, 8, (), True),
    "qwen3-4b": ("qwen3", 36, 2560, 9728, 32, 8, (), True),
    "qwen3-8b": ("qwen3", 36, 4096, 12288, 32, 8, (), False),
    "qwen3moe-30b-a3b": ("qwen3moe", 48, 2048, 6144, 32, 4, (128, 8, 768), False),
    "qwen3moe-tiny": ("qwen3moe", 4, 512, 1024, 8, 2, (16, 4, 256), False),
    "qwen35-0.8b": ("qwen35", 24, 1024, 3584, 16, 4, (), True),
    "kolibri1-78b": ("kolibri1", 50, 2560, 512, 48, 4, (384, 6, 512), False),
}
HEAD, VOCABULARY, MERGES, CONTEXT, BASE, EPSILON = 128, 151936, 151387, 40960, 1e6, 1e-6  # of all of them
OWN = {  # what an architecture has beside
    "qwen35": {
        "tokens": ("qwen35", 248320, 247587),
        "ffn_norm": "post_attention_norm",
        "mixer": (16, 128, 4, 4),  # heads and their size, taps, and every so manieth layer has attention instead
        "query_gate": True,  # beside the query, as wide
        "keys": {"rope.freq_base": 1e7, "rope.dimension_count": 32, "rope.dimension_sections": [11, 11, 10, 0]},
    },
    "kolibri1": {
        "tokens": ("kolibri1", 128000, 127648),  # pre-tokenizer, tokens, merges
        "shared": 512,  # width of an expert that every token uses
        "norms": ("post_attention_norm", "post_ffw_norm"),
        "biased": True,  # the choice of experts
        "window": (513, 5),  # tokens that a layer sees, but for every so manieth
        "keys": {"rope.freq_base": 1e4, "expert_shared_count": 1, "expert_gating_func": 5, "expert_weights_norm": False},
    },
}


def finer(layer, layers):
    """Whether Q4_K_M keeps more bits of a layer's attn_v and ffn_down: the first and last eighth and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensors(name):
    """Every tensor as (name, dimensions fastest first, format)."""
    architecture, layers, width, hidden, heads, kv_heads, experts, tied = SHAPES[name]
    own, vocabulary = OWN.get(architecture, {}), tokens_of(architecture)[1]
    if not tied:
        yield "output.weight", (width, vocabulary), Q6_K
    yield "token_embd.weight", (width, vocabulary), Q6_K if tied else Q4_K
    for i in range(layers):
        start, mixed = f"blk.{i}.", Q6_K if finer(i, layers) else Q4_K
        for role in ("attn_norm", own.get("ffn_norm", "ffn_norm"), *own.get("norms", ())):
            yield f"{start}{role}.weight", (width,), F32
        if "mixer" in own and (i + 1) % own["mixer"][-1]:
            yield from delta(start, width, *own["mixer"], mixed)
        else:
            for role in ("attn_q_norm", "attn_k_norm"):
                yield f"{start}{role}.weight", (HEAD,), F32
            yield start + "attn_q.weight", (width, heads * HEAD * (1 + own.get("query_gate", False))), Q4_K
            yield start + "attn_k.weight", (width, kv_heads * HEAD), Q4_K
            yield start + "attn_v.weight", (width, kv_heads * HEAD), mixed
            yield start + "attn_output.weight", (heads * HEAD, width), Q4_K
        suffix, stack = "", ()
        if experts:
            count, _, hidden = experts
            suffix, stack = "_exps", (count,)
            yield start + "ffn_gate_inp.weight", (width, count), F32
            if own.get("biased"):
                yield start + "exp_probs_b.bias", (count,), F32
        if shared := own.get("shared"):
            yield f"{start}ffn_gate_shexp.weight", (width, shared), Q4_K
            yield f"{start}ffn_up_shexp.weight", (width, shared), Q4_K
            yield f"{start}ffn_down_shexp.weight", (shared, width), mixed
        yield f"{start}ffn_gate{suffix}.weight", (width, hidden, *stack), Q4_K
        yield f"{start}ffn_up{suffix}.weight", (width, hidden, *stack), Q4_K
        yield f"{start}ffn_down{suffix}.weight", (hidden, width, *stack), mixed
    yield "output_norm.weight", (width,), F32


def delta(start, width, heads, size, taps, _, mixed):
    """The tensors of a gated delta rule with as many keys as values."""
    inner = heads * size
    yield start + "attn_qkv.weight", (width, 3 * inner), mixed
    yield start + "attn_gate.weight", (width, inner), Q4_K
    for role in ("ssm_alpha", "ssm_beta"):
        yield f"{start}{role}.weight", (width, heads), F32
    yield start + "ssm_conv1d.weight", (taps, 3 * inner), F32
    for role in ("ssm_a", "ssm_dt.bias"):
        yield start + role, (heads,), F32
    yield start + "ssm_norm.weight", (size,), F32
    yield start + "ssm_out.weight", (inner, width), Q4_K


def tokens_of(architecture):
    """(pre-tokenizer, tokens, merges) of an architecture's vocabulary."""
    return OWN.get(architecture, {}).get("tokens", ("qwen2", VOCABULARY, MERGES))


def special(architecture, layers):
    """Keys of one architecture alone."""
    own = OWN.get(architecture, {})
    keys = dict(own.get("keys", {}))
    if "shared" in own:
        keys["expert_shared_feed_forward_length"] = own["shared"]
    if "mixer" in own:
        heads, size, taps, every = own["mixer"]
        keys |= {"ssm.conv_kernel": taps, "ssm.state_size": size, "ssm.group_count": heads, "ssm.time_step_rank": heads}
        keys |= {"ssm.inner_size": heads * size, "full_attention_interval": every}
    if "window" in own:
        size, every = own["window"]
        keys["attention.sliding_window"] = size
        keys["attention.sliding_window_pattern"] = [bool((layer + 1) % every) for layer in range(layers)]
    return keys


def metadata(name, vocabulary):
    """Keys and values in the order of the file."""
    architecture, layers, width, hidden, heads, kv_heads, experts, _ = SHAPES[name]
    keys = {"general.architecture": architecture, "general.type": "model", "general.name": f"{name}, random weights"}
    keys |= {"general.file_type": 15, "general.quantization_version": 2}
    own = {
        "block_count": layers,
        "context_length": CONTEXT,
        "embedding_length": width,
        "feed_forward_length": hidden,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": EPSILON,
        "rope.freq_base": BASE,
    }
    if experts:
        own |= dict(zip(("expert_count", "expert_used_count", "expert_feed_forward_length"), experts, strict=True))
    own |= special(architecture, layers)
    keys |= {f"{architecture}.{key}": value for key, value in own.items()}
    words = {"model": "gpt2", "pre": vocabulary["pre"], "tokens": vocabulary["tokens"], "token_type": vocabulary["types"]}
    words |= {"merges": vocabulary["merges"], "add_bos_token": False}
    words |= {f"{end}_token_id": vocabulary[end] for end in ("bos", "eos") if vocabulary.get(end) is not None}
    keys |= {f"tokenizer.ggml.{key}": value for key, value in words.items()}
    if vocabulary.get("chat_template"):
        keys["tokenizer.chat_template"] = vocabulary["chat_template"]
    return keys


# ---- vocabulary --------------------------------------------------------------------------------------------


def made_up(architecture=""):
    """A valid byte-level vocabulary: 256 bytes, tokens that join two earlier ones, three control tokens, unused padding."""
    kind, size, most = tokens_of(architecture)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]
    random = numpy.random.default_rng(5)
    tokens, known, merges = list(letters), set(letters), []
    while len(merges) < most:
        for a, b in random.integers(0, len(tokens), (most, 2)).tolist():
            joined = tokens[a] + tokens[b]
            if len(joined) < 16 and joined not in known and len(merges) < most:
                known.add(joined)
                tokens.append(joined)
                merges.append(f"{tokens[a]} {tokens[b]}")
    kinds, end = [1] * len(tokens), len(tokens)
    tokens += ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), size)]
    kinds += [3] * 3 + [5] * (size - end - 3)
    return {"pre": kind, "tokens": tokens, "types": kinds, "merges": merges, "bos": end, "eos": end + 2}


def read_vocabulary(path):
    with lzma.open(path) as file:
        return json.load(file)


# ---- blocks ------------------------------------------------------------------------------------------------


def q4_k(random, deviation):
    """uint8 [TILE, 144]: uniform 4-bit quants around their middle, 7.5 times the scale being the minimum."""
    scales = random.integers(24, 64, (TILE, 8)).astype(numpy.uint8)
    spread = numpy.sqrt((16**2 - 1) / 12 * (scales.astype(float) ** 2).mean())
    d = (deviation / spread * random.uniform(0.8, 1.2, TILE)).astype("<f2")
    blocks = random.integers(0, 256, (TILE, 144), numpy.uint8)
    blocks[:, 0:2] = d[:, None].view(numpy.uint8)
    blocks[:, 2:4] = (7.5 * d.astype(float)).astype("<f2")[:, None].view(numpy.uint8)
    low, high = scales[:, :4], scales[:, 4:]  # six bits each; the upper four keep their two high bits with the lower four
    blocks[:, 4:8] = blocks[:, 8:12] = low | high >> 4 << 6
    blocks[:, 12:16] = high & 15 | (high & 15) << 4
    return blocks


def q6_k(random, deviation):
    """uint8 [TILE, 210]: uniform 6-bit quants around 32, scales of both signs."""
    scales = random.integers(40, 128, (TILE, 16)) * random.choice((-1, 1), (TILE, 16))
    spread = numpy.sqrt((64**2 - 1) / 12 * (scales.astype(float) ** 2).mean())
    blocks = random.integers(0, 256, (TILE, 210), numpy.uint8)
    blocks[:, 192:208] = scales.astype(numpy.int8).view(numpy.uint8)
    blocks[:, 208:210] = (deviation / spread * random.uniform(0.8, 1.2, TILE)).astype("<f2")[:, None].view(numpy.uint8)
    return blocks


TILES = {Q4_K: q4_k, Q6_K: q6_k}


def deviation(name, inputs):
    """Of a tensor's weights: the embedding and the branches small beside the stream, the router wide, so that it chooses."""
    if name.startswith("token_embd"):
        return 0.05
    return (4.0 if "ffn_gate_inp" in name else 1.0) / inputs**0.5


def plain(name, shape):
    """float32 of a vector or router. Logarithms of decays are negative."""
    random = numpy.random.default_rng(zlib.crc32(name.encode()))
    x = random.standard_normal(shape[::-1], numpy.float32)
    if name.endswith("ssm_a"):
        return -numpy.exp(x)
    return 1 + 0.1 * x if "norm" in name else x * numpy.float32(deviation(name, shape[0]))


# ---- file --------------------------------------------------------------------------------------------------


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def encoded(value):
    """Type and value of a key: bool, u32, f32, string, or an array of bools, strings or i32."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value[0], bool):
        return struct.pack("<IIQ", 9, 7, len(value)) + bytes(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + numpy.array(value, "<i4").tobytes()


def nbytes(shape, kind):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    return 4 * count if kind == F32 else count // BLOCK * NBYTES[kind]


def plan(name, vocabulary):
    """(header, [(tensor, shape, format, offset in the file)], bytes of the file)."""
    keys, listed = metadata(name, vocabulary), list(tensors(name))
    parts, placed, at = [struct.pack("<IIQQ", 0x46554747, 3, len(listed), len(keys))], [], 0
    parts += [text(key) + encoded(value) for key, value in keys.items()]
    for tensor, shape, kind in listed:
        parts.append(text(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at))
        placed.append((tensor, shape, kind, at))
        at += -(-nbytes(shape, kind) // ALIGNMENT) * ALIGNMENT
    header = b"".join(parts)
    header += bytes(-len(header) % ALIGNMENT)
    return header, [(*tensor, len(header) + offset) for *tensor, offset in placed], len(header) + at


def fill(target, tile, phase):
    """Writes over `target` the endless repetition of `tile` from byte `phase`; both are uint8 arrays."""
    at = 0
    while at < len(target):
        piece = tile[(phase + at) % len(tile) :][: len(target) - at]
        target[at : at + len(piece)] = piece
        at += len(piece)


def write(name, path, vocabulary, threads):
    """Writes the file, through a mapping: a file takes one `write` at a time, but page faults of all threads; returns its bytes."""
    header, placed, total = plan(name, vocabulary)
    room = os.statvfs(os.path.dirname(os.path.abspath(path)))
    if total > room.f_bavail * room.f_frsize:  # a page that has no place ends the process
        sys.exit(f"{path}: {total} bytes are needed, {room.f_bavail * room.f_frsize} are free")
    tiles = {}
    for tensor, shape, kind, _ in placed:
        key = kind, deviation(tensor, shape[0])
        if kind != F32 and key not in tiles:
            tiles[key] = numpy.ascontiguousarray(TILES[kind](numpy.random.default_rng(len(tiles)), key[1])).reshape(-1)
    with open(path, "w+b") as file:
        file.truncate(total)
        mapping = mmap.mmap(file.fileno(), total)
    data, jobs = numpy.frombuffer(mapping, numpy.uint8), []
    with ThreadPoolExecutor(threads) as pool:
        data[: len(header)] = numpy.frombuffer(header, numpy.uint8)
        for tensor, shape, kind, at in placed:
            size = nbytes(shape, kind)
            if kind == F32:
                data[at : at + size] = plain(tensor, shape).reshape(-1).view(numpy.uint8)
                continue
            tile, phase = tiles[kind, deviation(tensor, shape[0])], zlib.crc32(tensor.encode()) % TILE * NBYTES[kind]
            for first in range(0, size, PIECE):
                end = min(first + PIECE, size)
                jobs.append(pool.submit(fill, data[at + first : at + end], tile, phase + first))
        for job in jobs:
            job.result()
    jobs.clear()
    del data, job
    mapping.close()
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out")
    parser.add_argument("--vocabulary", help="a real one, JSON compressed by xz")
    parser.add_argument("--threads", type=int, default=THREADS)
    options = parser.parse_args()
    began = time.perf_counter()
    vocabulary = read_vocabulary(options.vocabulary) if options.vocabulary else made_up(SHAPES[options.shape][0])
    total = write(options.shape, options.out, vocabulary, options.threads)
    print(f"{options.out}: {options.shape}, {total} bytes in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
