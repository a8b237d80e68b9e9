"""Tiny random models, one or more per family record, with the keys, tensor names and tokenizers of real files.

`MODELS` is made by enumerating reflex/arch: every family by its own TINY sizes, then variants that switch on what only
some files of the family have. `write(name, path)` writes one with the `gguf` package; the same name, type and seed give
the same weights. Matrices can have any type that `gguf` or `libgguf` can encode; norms, biases and factors stay F32.
"""

import re
import zlib

import numpy as np
import tiny_experts
import tiny_gemma
import tiny_latent
import tiny_recurrent
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from reflex import arch
from reflex.arch.spec import NORMS

CONTEXT, VOCABULARY = 1024, 512
SIZES = ("width", "layers", "heads", "kv_heads", "head_dim", "feed_forward")
PLAIN = ("norm", "bias", "position", "ffn_gate_inp", *tiny_recurrent.PLAIN)  # in names of tensors that stay F32 in every file
ENDS = re.compile(r"\.(attn_output|ffn_down(_exps|_shexp)?)\.weight")  # of the halves of a block
WORDS = "the quick brown fox jumps over a lazy dog while that other animal sings about things which were here before"

# name -> (model, pre-tokenizer, special tokens, bos, eos, whether bos is added)
TOKENIZERS = {
    "spm": ("llama", "default", ["<unk>", "<s>", "</s>"], 1, 2, True),
    "qwen2": ("gpt2", "qwen2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], 0, 2, False),
    "smollm": ("gpt2", "smollm", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], 1, 2, False),
    "smaug": ("gpt2", "smaug-bpe", ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"], 0, 2, False),
    "seed-coder": ("gpt2", "seed-coder", ["<seed:bos>", "<seed:eos>"], 0, 1, True),
    "hunyuan": ("gpt2", "hunyuan-dense", ["<|startoftext|>", "<|eos|>"], 0, 1, False),
    "tekken": ("gpt2", "tekken", ["<unk>", "<s>", "</s>"], 1, 2, True),
    "refact": ("gpt2", "refact", ["<|end_of_text|>"], 0, 0, False),
    "exaone": ("gpt2", "exaone", ["[BOS]", "[|endofturn|]"], 0, 1, False),
    "exaone4": ("gpt2", "exaone4", ["[BOS]", "[|endofturn|]"], 0, 1, False),
    "chatglm": ("gpt2", "chatglm-bpe", ["<|endoftext|>", "<|user|>", "<|assistant|>"], 0, 0, False),
    "glm4": ("gpt2", "glm4", ["<|endoftext|>", "<|user|>", "<|assistant|>"], 0, 0, False),
    "gpt2": ("gpt2", "gpt-2", ["<|endoftext|>"], 0, 0, False),
    "phi2": ("gpt2", "phi-2", ["<|endoftext|>"], 0, 0, False),
    "starcoder": ("gpt2", "starcoder", ["<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>"], 0, 0, False),
    "falcon": ("gpt2", "falcon", ["<|endoftext|>"], 0, 0, False),
    "olmo": ("gpt2", "olmo", ["<|endoftext|>"], 0, 0, False),
    "dbrx": ("gpt2", "dbrx", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], 0, 0, False),
    "stablelm2": ("gpt2", "stablelm2", ["<|endoftext|>", "<|im_end|>"], 0, 0, False),
    "command-r": ("gpt2", "command-r", ["<PAD>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"], 1, 2, True),
    "gpt-4o": ("gpt2", "gpt-4o", ["<|endoftext|>", "<|end|>"], 0, 1, False),
    "llama-bpe": ("gpt2", "llama-bpe", ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], 0, 1, True),
}
TOKENIZERS |= tiny_experts.TOKENIZERS | tiny_latent.TOKENIZERS | tiny_gemma.TOKENIZERS | tiny_recurrent.TOKENIZERS

YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 512}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
LONG = {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.2}
LONG_SHORT = ("rope_factors_long", "rope_factors_short")
EVERY_MATRIX = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
DECI = {"attention.head_count_kv": [2, 0], "feed_forward_length": 96}

# variant -> (family, changes of its TINY record; `keys` are merged)
VARIANTS = {
    "llama-untied": ("llama", {"untied": True}),
    "llama-smollm": ("llama", {"tokenizer": "smollm", "keys": {"rope.freq_base": 1e5}, "kv_heads": 4}),
    "llama-factors": ("llama", {"tokenizer": "llama-bpe", "factors": ("rope_freqs",), "keys": {"rope.freq_base": 5e5}}),
    "llama-linear": ("llama", {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}}),
    "llama-old-linear": ("llama", {"keys": {"rope.scale_linear": 4.0}}),
    "llama-no-scaling": ("llama", {"keys": {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}}),
    "llama-yarn": ("llama", {"keys": {**YARN, "rope.scaling.attn_factor": 1.3}}),
    "llama-long": (
        "llama",
        {
            "factors": ("rope_factors_long", "rope_factors_short"),
            "keys": {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 64},
        },
    ),
    "llama-short": (
        "llama",
        {
            "factors": ("rope_factors_long", "rope_factors_short"),
            "keys": {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 4096},
        },
    ),
    "llama-biases": ("llama", {"biases": EVERY_MATRIX}),
    "llama-fused": ("llama", {"fused": True}),
    "qwen2-fused": ("qwen2", {"fused": True}),  # a fused matrix with three separate biases
    "qwen2-fused-bias": ("qwen2", {"fused": True, "biases": ("attn_qkv",)}),
    "qwen2-yarn": ("qwen2", {"untied": True, "biases": ("attn_q", "attn_k", "attn_v", "output"), "keys": YARN}),
    "qwen3-yarn": ("qwen3", {"untied": True, "keys": YARN}),
    "gemma3-pattern": (
        "gemma3",
        {
            "keys": {
                "attention.sliding_window_pattern": [True, False, True, True, False, True, False],
                "rope.freq_base_swa": 2e4,
                "final_logit_softcapping": 1.5,
            }
        },
    ),
    "gemma3-every-3": ("gemma3", {"keys": {"attention.sliding_window_pattern": 3}}),
    "gemma3-no-window": ("gemma3", {"keys": {"attention.sliding_window": 0}}),
    "gemma3-untied": ("gemma3", {"untied": True}),
    "gemma3-62-layers": ("gemma3", {"layers": 62, "branch": 0.25}),
    "mistral3-plain": ("mistral3", {"biases": EVERY_MATRIX, "factors": ("rope_freqs",), "keys": {"rope.scaling.type": "none"}}),
    "mistral3-long": (
        "mistral3",
        {"factors": LONG_SHORT, "keys": {"rope.scaling.type": "longrope", "attention.temperature_scale": 0.0}},
    ),
    "hunyuan-dense-plain": ("hunyuan-dense", {"untied": True, "keys": {"rope.scaling.alpha": 0.0}}),
    "seed_oss-tied": ("seed_oss", {"untied": False, "fused": True}),
    "ernie4_5-untied": ("ernie4_5", {"untied": True, "biases": EVERY_MATRIX[:3]}),
    "gemma2-scaled": ("gemma2", {"keys": LINEAR}),
    "gemma2-46-layers": ("gemma2", {"layers": 46, "branch": 0.25}),
    "phi3-long": ("phi3", {"factors": LONG_SHORT, "keys": {**LONG, "rope.scaling.original_context_length": 64}}),
    "phi3-short": ("phi3", {"factors": LONG_SHORT, "keys": {**LONG, "rope.scaling.original_context_length": 1024}}),
    "phi3-partial": (
        "phi3",
        {"tokenizer": "gpt-4o", "factors": LONG_SHORT, "untied": False, "keys": {**LONG, "rope.dimension_count": 12}},
    ),
    "phi3-no-type": ("phi3", {"factors": LONG_SHORT, "keys": {"rope.scaling.original_context_length": 64}}),
    "granite-no-rope": ("granite", {"keys": {"rope.scaling.finetuned": False}}),
    "granite-untied": ("granite", {"untied": True, "biases": EVERY_MATRIX, "factors": ("rope_freqs",)}),
    "granite-long": ("granite", {"factors": LONG_SHORT, "keys": LONG}),
    "minicpm-factors": ("minicpm", {"untied": True, "biases": EVERY_MATRIX[:3], "factors": ("rope_freqs",)}),
    "minicpm-long": ("minicpm", {"factors": LONG_SHORT, "keys": LONG}),
    "exaone4-64-layers": ("exaone4", {"layers": 64}),
    "exaone4-plain": ("exaone4", {"factors": (), "untied": True, "keys": YARN}),
    "gptneox-serial": ("gptneox", {"keys": {"use_parallel_residual": False}}),
    "phi2-fused": ("phi2", {"fused": True, "biases": ("attn_qkv", "attn_output", "ffn_up", "ffn_down", "output")}),
    "falcon-two-norms": ("falcon", {"absent": (), "kv_heads": 2, "untied": False}),
    "stablelm-biases": ("stablelm", {"tokenizer": "stablelm2", "biases": EVERY_MATRIX[:3]}),
    "stablelm-parallel": ("stablelm", {"tokenizer": "stablelm2", "absent": ("ffn_norm",), "head_norms": True, "kv_heads": 2}),
    "nemotron-biases": ("nemotron", {"biases": (*EVERY_MATRIX[:4], "ffn_up", "ffn_down")}),
    "command-r-64-layers": ("command-r", {"layers": 64, "head_norms": True}),
    "olmo-plain": ("olmo", {"untied": True, "kv_heads": 2, "keys": {"attention.clamp_kqv": 0.0}}),
    "olmo2-windows": (
        "olmo2",
        {
            "layers": 5,
            "keys": {**YARN, "rope.scaling.attn_factor": 1.2, "attention.sliding_window": 16, "rope.freq_base_swa": 500.0},
        },
    ),
    "olmo2-pattern": (
        "olmo2",
        {"keys": {**LINEAR, "attention.sliding_window": 16, "attention.sliding_window_pattern": [False, True, True]}},
    ),
    "apertus-one-number": (
        "apertus",
        {
            "factors": (),
            "biases": EVERY_MATRIX[:4],
            "keys": {**YARN, "/xielu.alpha_p": 0.8, "/xielu.alpha_n": 0.6, "/xielu.beta": 0.5, "/xielu.eps": -1e-6},
        },
    ),
    "apertus-long": ("apertus", {"factors": LONG_SHORT, "keys": LONG}),
    "arcee-factors": ("arcee", {"untied": False, "factors": ("rope_freqs",)}),
    "deci-ends-without-attention": (
        "deci",
        {"layers": 2, "biases": EVERY_MATRIX, "factors": ("rope_freqs",), "keys": DECI | {"attention.head_count": [4, 0]}},
    ),
    "deci-ends-with-one-matrix": ("deci", {"layers": 2, "factors": LONG_SHORT, "keys": DECI | LONG | {"attention.head_count": 4}}),
    "qwen2vl-yarn": ("qwen2vl", {"fused": True, "keys": YARN}),
    "qwen3vl-untied": ("qwen3vl", {"untied": True, "keys": LINEAR}),
    "glm4-sections": ("glm4", {"keys": {"rope.dimension_sections": [3, 2, 1, 0]}}),
    "glm4-biases": ("glm4", {"untied": False, "biases": ("attn_q", "attn_k", "attn_v")}),
}
MODELS = {name: (name, {}) for name in arch.families()} | VARIANTS | tiny_experts.VARIANTS | tiny_latent.VARIANTS
MODELS |= tiny_recurrent.VARIANTS | tiny_gemma.VARIANTS


class Model:
    """Sizes and keys of one tiny model: the TINY record of its family with the changes of a variant."""

    def __init__(self, name, **changes):
        self.architecture, variant = MODELS[name]
        module = arch.find(self.architecture)
        facts = {**module.TINY, **variant, **changes}
        self.family = module.FAMILY
        self.keys = {**module.TINY.get("keys", {}), **variant.get("keys", {}), **changes.get("keys", {})}
        for size in SIZES:
            setattr(self, size, facts[size])
        self.tokenizer = facts["tokenizer"]
        self.absent = facts.get("absent", ())  # roles of norms that the family has in other files
        self.biases = facts.get("biases", ())
        self.mixer = facts.get("mixer", {})
        self.fused = facts.get("fused", False)
        self.head_norms = facts.get("head_norms", self.family.head_norm_if == "always")
        self.untied = facts.get("untied", False)
        self.sinks = facts.get("sinks", ())  # layers that have them where they are optional
        self.value_dim = facts.get("value_dim", 0)  # of a head, where it differs from head_dim
        self.factors = facts.get("factors", ())
        self.embed_std = facts.get("embed_std", 1.0)
        self.branch = facts.get("branch", 1.0)  # size of what the halves of a block add: in deep models they are small
        for name, default in (tiny_experts.FACTS | tiny_latent.FACTS | tiny_gemma.FACTS).items():
            setattr(self, name, facts.get(name, default))

    def metadata(self):
        """Every key with its value. What equals its default is left out, so that defaults are tested."""
        keys = {
            "context_length": CONTEXT,
            "embedding_length": self.width,
            "block_count": self.layers + self.drafts,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            NORMS[self.family.norm][1]: 1e-5,
        }
        if self.kv_heads != self.heads:
            keys["attention.head_count_kv"] = self.kv_heads
        if self.heads and (self.heads * self.head_dim != self.width or self.value_dim):
            keys |= {"attention.key_length": self.head_dim, "attention.value_length": self.value_dim or self.head_dim}
        if self.family.rope == "norm":
            keys["rope.dimension_count"] = self.head_dim
        if self.latent:
            keys |= tiny_latent.metadata(self)
        keys |= tiny_gemma.metadata(self) | tiny_experts.metadata(self) | tiny_recurrent.metadata(self) | self.keys
        keys = {key: value for key, value in keys.items() if value is not None}
        return {key[1:] if key[0] == "/" else f"{self.architecture}.{key}": value for key, value in keys.items()}

    def at(self, key, default, i):
        """A size of layer i: keys may hold one value per layer."""
        value = self.keys.get(key, default)
        return value[i] if isinstance(value, list) else value

    def shapes(self):
        """Every tensor as (name, numpy shape)."""
        width, f = self.width, self.family
        yield "token_embd.weight", (VOCABULARY, width)
        if f.positions:
            yield "position_embd.weight", (CONTEXT, width)
        yield from self.norm(self.family.output_norm)
        if self.untied:
            yield "output.weight", (VOCABULARY, width)
        if "output" in self.biases:
            yield "output.bias", (VOCABULARY,)
        for name in self.factors:
            yield name + ".weight", (self.keys.get("rope.dimension_count", self.head_dim) // 2,)
        yield from tiny_gemma.outer(self)
        for i in range(self.layers + self.drafts):
            for name, shape in self.layer(i):
                yield f"blk.{i}.{name}", shape

    def norm(self, role):
        for part, there in zip(("weight", "bias"), NORMS[self.family.norm][2:], strict=True):
            if there:
                yield f"{role}.{part}", (self.width,)

    def layer(self, i):
        """The tensors of one layer, whose sizes may be its own."""
        width, f = self.width, self.family
        heads = self.at("attention.head_count", self.heads, i)
        kv_heads = self.at("attention.head_count_kv", self.kv_heads, i)
        feed_forward = self.at("feed_forward_length", self.feed_forward, i)
        dim = tiny_gemma.head_dim(self, i)
        q, k, v = (1 + f.query_gate) * heads * dim, kv_heads * dim, kv_heads * (self.value_dim or dim)
        if self.family.mixer and not tiny_recurrent.attends(self, i):
            heads = kv_heads = 0
        mixes = tiny_recurrent.recurrent(self, i)
        norms = [*(role if isinstance(role, tuple) else (role,) for role in (f.attn_norm, f.attn_out_norm) if heads or mixes)]
        norms += [role if isinstance(role, tuple) else (role,) for role in (f.ffn_norm, f.ffn_out_norm) if feed_forward]
        for role in dict.fromkeys(role for roles in norms for role in roles if role and role not in self.absent):
            if role == "ffn_norm" and f.mixer_in == "beside":  # Falcon-H1's has no suffix
                yield role, (self.width,)
            else:
                yield from self.norm(role)
        if mixes:
            yield from tiny_recurrent.shapes(self, i)
        if f.head_norm and self.head_norms and (heads or not f.mixer):
            one, own = {"rms": lambda n: (dim,), "row rms": lambda n: (n * dim,)}, lambda n: (n, dim)
            shape = one.get(f.head_norm, own)
            yield "attn_q_norm.weight", shape(heads)
            if tiny_gemma.owns(self, i) or self.keeps_keys:
                yield "attn_k_norm.weight", shape(kv_heads)
        matrices = [("attn_q", q, width), ("attn_k", k, width), ("attn_v", v, width)] if kv_heads else []
        if self.latent:
            yield from tiny_latent.shapes(self) if heads else ()
            matrices = []
        if self.fused:
            matrices = [("attn_qkv", q + k + v, width)]
        matrices = tiny_gemma.matrices(self, i, matrices)
        mixed = heads * (self.value_dim or dim) if kv_heads else width
        matrices += [("attn_output", width, mixed)] if heads and not self.latent else []
        if self.family.sinks == "required" or i in self.sinks:
            yield "attn_sinks.weight", (heads,)
        if i >= self.layers:
            yield from tiny_experts.draft(self)
        if tiny_experts.mixed(self, i) and (feed_forward or not f.one_part):
            yield from tiny_experts.shapes(self)
        if feed_forward and (f.beside or not tiny_experts.mixed(self, i)):
            matrices += [("ffn_gate", feed_forward, width)] if f.gate == "split" else []
            matrices += [("ffn_up", (1 + (f.gate == "fused")) * feed_forward, width), ("ffn_down", width, feed_forward)]
        yield from tiny_gemma.shapes(self, i, heads)
        rows = {"attn_q": q, "attn_k": k, "attn_v": v} if kv_heads else {}
        for role, n, inputs in matrices:
            rows[role] = n
            yield f"{role}.weight", (n, inputs)
        for role in self.biases:
            if role in rows:
                yield f"{role}.bias", (rows[role],)


def values(name, shape, embed_std, seed, branch=1.0, peak=1.5):
    """The numbers of one tensor; sizes keep the activations near 1 and the attention peaked, by `peak` in queries and in keys."""
    random = np.random.default_rng(zlib.crc32(f"{seed} {name}".encode()))
    x = random.standard_normal(shape, np.float32)
    if name.startswith("rope_f"):
        x = 1 + np.abs(x) * (0.5 if "short" in name else 4)
    elif name.endswith(".bias"):
        x = 0.3 * x
    elif "norm" in name:
        x = (1 + 0.3 * x) * (branch if ".post_" in name else 1)
    elif name == "token_embd.weight":
        x = embed_std * x
    elif name == "position_embd.weight":
        x = 0.5 * x
    elif "attn_sinks" in name:
        pass
    elif name.endswith((".scale", "_scale.weight")):
        x = 1 + 0.3 * x
    elif tiny_recurrent.values(name, x) is not None:
        x = tiny_recurrent.values(name, x)
    else:
        size = peak if ".attn_q" in name or ".attn_k" in name else branch if ENDS.search(name) else 1.0
        x = x * size / shape[-1] ** 0.5
    return x.astype(np.float32)


def endless(model, tensor, x):
    """Numbers of an untied model in whose output a control token, thus an end, is never drawn: the first number of the stream is 1
    for every token in every layer, and from there the logits of control tokens get minus some 100,000. A text then has as many
    tokens as were asked for, whatever is drawn and however a processor rounds."""
    assert model.untied and not model.biases
    if tensor == "token_embd.weight":
        x[:, 0] = 1
    elif tensor == "output.weight":
        x[:, 0] = 0
        x[: len(TOKENIZERS[model.tokenizer][2]), 0] = -1e6
    elif tensor == "output_norm.weight":
        x[0] = 1
    elif ENDS.search(tensor):
        x[..., 0, :] = 0
    return x


def write(name, path, kind="F32", seed=0, template=None, ends=True, **changes):
    """Writes model `name` to `path`, its matrices in format `kind` (ggml's spelling) and with a chat template; `changes` override
    its sizes. Not `ends`: see `endless`."""
    model = Model(name, **({} if ends else {"untied": True}), **changes)
    writer = GGUFWriter(str(path), model.architecture)
    for key, value in model.metadata().items():
        add_key(writer, key, value)
    add_tokenizer(writer, model.tokenizer)
    if template is not None:
        writer.add_string("tokenizer.chat_template", template)
    for tensor, shape in model.shapes():
        peak = 1.0 if model.latent else 1.5  # latent queries and keys are products of two such matrices, and YARN adds its strength
        x = tiny_gemma.still(model, tensor, values(tensor, shape, model.embed_std, seed, model.branch, peak))
        x = x if ends else endless(model, tensor, x)
        if kind != "F32" and len(shape) >= 2 and not any(word in tensor for word in PLAIN):
            add_encoded(writer, tensor, x, GGMLQuantizationType[kind])
        else:
            writer.add_tensor(tensor, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_key(writer, key, value):
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
    add[type(value)](key, value)


def add_encoded(writer, name, x, kind):
    try:
        data = quantize(x, kind)
    except NotImplementedError:
        from libgguf import quantize_rows

        data = np.frombuffer(quantize_rows(x.reshape(-1, x.shape[-1]), int(kind)), np.uint8).reshape(*x.shape[:-1], -1)
    writer.add_tensor(name, data, raw_dtype=kind)


def add_tokenizer(writer, name):
    """A small valid vocabulary of VOCABULARY tokens: specials, bytes, beginnings of WORDS, unused padding."""
    model, pre, special, bos, eos, add_bos = TOKENIZERS[name]
    normal, unknown, control, unused, byte = 1, 2, 3, 5, 6
    space = "\u0120" if model == "gpt2" else "\u2581"
    words = [space + word for word in WORDS.split()]
    starts = list(dict.fromkeys(word[: n + 1] for n in range(1, 8) for word in words if len(word) > n))
    kinds = [control] * len(special)
    if model != "gpt2":
        kinds[0] = unknown
        letters = sorted(set("".join(words)))
        tokens = [*special, *(f"<0x{b:02X}>" for b in range(256)), *letters, *starts]
        kinds += [byte] * 256 + [normal] * (len(letters) + len(starts))
    else:
        tokens = [*special, *byte_letters(), *starts]
        kinds += [normal] * (256 + len(starts))
    if model != "llama":
        writer.add_array("tokenizer.ggml.merges", [f"{start[:-1]} {start[-1]}" for start in starts])
    padding = [f"[PAD{i}]" for i in range(VOCABULARY - len(tokens))]
    tokens, kinds = tokens + padding, kinds + [unused] * len(padding)
    writer.add_string("tokenizer.ggml.model", model)
    if pre:
        writer.add_string("tokenizer.ggml.pre", pre)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", kinds)
    if model != "gpt2":
        writer.add_array("tokenizer.ggml.scores", [-float(i) if kind == normal else 0.0 for i, kind in enumerate(kinds)])
        writer.add_uint32("tokenizer.ggml.unknown_token_id", 0)
    writer.add_uint32("tokenizer.ggml.bos_token_id", bos)
    writer.add_uint32("tokenizer.ggml.eos_token_id", eos)
    writer.add_bool("tokenizer.ggml.add_bos_token", add_bos)


def byte_letters():
    """The printable letter that byte-level vocabularies use for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]
