"""Tensors of a model: names every one the program will read, and checks its shape against the metadata.

Shapes are GGUF order, fastest first: a matrix is (in, out). Refuses a missing tensor or a wrong shape (ModelFileError
with expected and found) and a tensor nobody would read (UnsupportedError): such a file wants a computation that its
family record does not describe, and ignoring it would give fluent nonsense. Called by arch.load_spec.
"""

from ..errors import ModelFileError, UnsupportedError
from ..native import view
from . import names
from .spec import NORMS, Matrix

F32 = 0  # GGML type id of factor tensors
LARGEST_FACTOR = 1e31  # 1e30 stands for a pair that does not turn


class Taken:
    """The tensors of a file and which of them have found a reader."""

    __slots__ = ("biased", "tensors", "used", "weighted")

    def __init__(self, tensors, family):
        self.tensors = tensors  # {name: tensor}
        _, _, self.weighted, self.biased = NORMS[family.norm]  # what norms have
        self.used = []

    def need(self, name, shape):
        tensor = self.tensors.get(name)
        if tensor is None:
            raise ModelFileError("a tensor is missing", expected=f"{name} {list(shape)}", found="no such tensor")
        if tensor.shape != shape and trimmed(tensor.shape) != trimmed(shape):
            raise ModelFileError(
                "a tensor contradicts the metadata", expected=list(shape), found=list(tensor.shape), where=f"tensor {name}"
            )
        self.used.append(name)
        return name

    def skip(self, *names):
        """Tensors that may be there and are of no use."""
        self.used += [name for name in names if name in self.tensors]

    def optional(self, name, shape):
        return self.need(name, shape) if name in self.tensors else None

    def matrix(self, role, inputs, outputs, biased):
        return Matrix(self.need(role + ".weight", (inputs, outputs)), self.optional(role + ".bias", (outputs,)) if biased else None)

    def norm(self, role, width):
        """(weight, bias) of a norm, None for what the family's norms do not have."""
        name = role if role in self.tensors else role + ".weight"  # some writers leave the suffix out
        weight = self.need(name, (width,)) if self.weighted else None
        return weight, self.need(role + ".bias", (width,)) if self.biased else None


def trimmed(shape):
    """A shape without trailing ones, which writers may or may not store."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return tuple(shape)


def read_tensors(file, family, spec):
    """Fills in the tensor names of spec and of its layers."""
    taken = Taken(file.base, family)
    read_embedding(file, taken, family, spec)
    for layer in spec.layers:
        read_layer(taken, family, layer, spec.width)
    if spec.inputs:
        from .layer_inputs import read_input_tensors

        read_input_tensors(taken, spec)
    if spec.streams:
        from .streams import read_stream_tensors

        read_stream_tensors(taken, spec)
    spec.output_norm = taken.norm(family.output_norm, spec.width)
    read_output(taken, family, spec)
    read_factors(taken, family, spec)
    if len(taken.used) != len(taken.tensors):
        idle = set(range(file.u(spec.architecture + ".block_count"))).difference(layer.index for layer in spec.layers)
        refuse_leftovers(taken, idle)


def read_embedding(file, taken, family, spec):
    name = names.EMBEDDING + ".weight"
    table = taken.tensors.get(name)
    rows = table.shape[-1] if table is not None and len(table.shape) == 2 else 0
    spec.vocabulary = file.array("tokenizer.ggml.tokens").count if file.has("tokenizer.ggml.tokens") else rows
    if not spec.vocabulary:
        raise ModelFileError("the model has no vocabulary", "tokenizer.ggml.tokens, or rows", "neither", f"tensor {name}")
    spec.embedding = taken.need(name, (spec.width, spec.vocabulary))
    spec.positions = None
    if family.positions:
        spec.positions = taken.need(names.POSITIONS + ".weight", (spec.width, spec.context_length))


def read_layer(taken, family, layer, width):
    start = names.prefix(layer.index)
    before = role_of(taken, start, family.attn_norm)
    again = role_of(taken, start, family.ffn_norm)
    layer.attn_norm = taken.norm(start + before, width) if before and (layer.heads or layer.mixer) else None
    read_attention(taken, family, start, layer, width)
    if layer.mixer:
        from .recurrent import read_mixer_tensors

        read_mixer_tensors(taken, layer, width)
    layer.attn_out_norm = taken.norm(start + family.attn_out_norm, width) if family.attn_out_norm else None
    layer.ffn_norm = layer.ffn_out_norm = None
    if not (layer.feed_forward or layer.experts):
        return
    if before == again and not family.one_part:
        layer.ffn_norm = layer.attn_norm
        layer.parallel = before is not None
    else:
        layer.ffn_norm = taken.norm(start + again, width) if again else None
    if layer.experts:
        from .experts import read_expert_tensors

        read_expert_tensors(taken, family, layer, width)
    if family.beside or not layer.experts:
        read_feed_forward(taken, family, start, layer, width)
    layer.ffn_out_norm = taken.norm(start + family.ffn_out_norm, width) if family.ffn_out_norm else None
    if family.out_scale:
        layer.out_scale = taken.optional(f"{start}{names.LAYER_SCALE}.weight", (1,))


def role_of(taken, start, roles):
    """The first role of a tuple that the file has a weight for, else the last."""
    if type(roles) is not tuple:
        return roles
    return next((role for role in roles if f"{start}{role}.weight" in taken.tensors), roles[-1])


def read_attention(taken, family, start, layer, width):
    """Matrices and head norms; None for what a layer without heads or without keys lacks."""
    layer.q = layer.k = layer.v = layer.o = layer.q_norm = layer.k_norm = None
    layer.sinks = None
    if family.sinks:
        take = taken.need if family.sinks == "required" else taken.optional
        layer.sinks = take(f"{start}{names.ATTN_SINKS}.weight", (layer.heads,))
    if layer.latent:
        from .latent import read_latent_tensors  # an import that most files need not wait for

        read_latent_tensors(taken, start, layer, width)
    elif layer.kv_heads:
        read_qkv(taken, family, start, layer, width)
        biased = "attn_output" in family.biases
        layer.o = taken.matrix(start + names.ATTN_OUTPUT, layer.heads * layer.value_dim, width, biased)
        if family.head_norm and (family.head_norm_if == "always" or f"{start}{names.ATTN_Q_NORM}.weight" in taken.tensors):
            layer.q_norm = head_norm(taken, family.head_norm, start + names.ATTN_Q_NORM, layer.key_dim, layer.heads)
            if layer.owner is None:
                layer.k_norm = head_norm(taken, family.head_norm, start + names.ATTN_K_NORM, layer.key_dim, layer.kv_heads)
    elif layer.heads:
        layer.o = taken.matrix(start + names.ATTN_OUTPUT, width, width, False)


def head_norm(taken, kind, role, size, heads):
    if kind == "layer":
        return taken.need(role + ".weight", (size, heads))
    return taken.need(role + ".weight", (heads * size,) if kind == "row rms" else (size,))


def read_feed_forward(taken, family, start, layer, width):
    ff, biased = layer.feed_forward, "ffn" in family.biases
    layer.gate = None
    if family.gate == "fused":
        both = taken.matrix(start + names.FFN_UP, width, 2 * ff, biased)
        layer.gate = Matrix(both.weight, both.bias, (0, ff))
        layer.up = Matrix(both.weight, both.bias, (ff, ff), ff)
    else:
        if family.gate:
            layer.gate = taken.matrix(start + names.FFN_GATE, width, ff, biased)
        layer.up = taken.matrix(start + names.FFN_UP, width, ff, biased)
    layer.down = taken.matrix(start + names.FFN_DOWN, ff, width, biased)


def read_qkv(taken, family, start, layer, width):
    """Three matrices, or three row ranges of the fused one; a fused matrix may come with separate biases."""
    queries = (1 + layer.query_gate) * layer.heads * layer.key_dim
    k, v, biased = layer.kv_heads * layer.key_dim, layer.kv_heads * layer.value_dim, "qkv" in family.biases
    if family.out_gate and (family.out_gate == "elements" or f"{start}{names.ATTN_GATE}.weight" in taken.tensors):
        gates = layer.heads * (layer.value_dim if family.out_gate == "elements" else 1)
        layer.out_gate = taken.matrix(start + names.ATTN_GATE, width, gates, False)
    fused = start + names.ATTN_QKV
    if fused + ".weight" not in taken.tensors:
        layer.q = taken.matrix(start + names.ATTN_Q, width, queries, biased)
        if layer.owner is not None:
            taken.skip(*(f"{start}{role}.weight" for role in (names.ATTN_K, names.ATTN_V, names.ATTN_K_NORM)))
            return
        layer.k = taken.matrix(start + names.ATTN_K, width, k, biased)
        if not (family.keys_as_values and k == v) or f"{start}{names.ATTN_V}.weight" in taken.tensors:
            layer.v = taken.matrix(start + names.ATTN_V, width, v, biased)
        return
    both = taken.matrix(fused, width, queries + k + v, biased)
    parts = []
    for role, first, count in ((names.ATTN_Q, 0, queries), (names.ATTN_K, queries, k), (names.ATTN_V, queries + k, v)):
        bias = both.bias or (taken.optional(f"{start}{role}.bias", (count,)) if biased else None)
        parts.append(Matrix(both.weight, bias, (first, count), first if both.bias else 0))
    layer.q, layer.k, layer.v = parts


def read_output(taken, family, spec):
    name, biased = names.OUTPUT + ".weight", "output" in family.biases
    if family.output == "required" or (family.output == "optional" and name in taken.tensors):
        spec.output = taken.matrix(names.OUTPUT, spec.width, spec.vocabulary, biased)
    else:  # tied: the embedding is read again, as a matrix
        spec.output = Matrix(spec.embedding, taken.optional(names.OUTPUT + ".bias", (spec.vocabulary,)) if biased else None)


def read_factors(taken, family, spec):
    """Divisors of the rotary frequencies, for the tables that are scaled."""
    for rotation in spec.rotations:
        half = rotation.dims // 2
        if "freqs" in family.rope_factors or ("full freqs" in family.rope_factors and not rotation.windowed):
            stored = int(half / family.rope_share)  # those that turn come first
            rotation.freqs = (factors(taken, names.ROPE_FREQS, stored) or [])[:half] or None
        if "always long" in family.rope_factors or ("long" in family.rope_factors and rotation.type == "longrope"):
            rotation.long = factors(taken, names.ROPE_LONG, half)
            rotation.short = factors(taken, names.ROPE_SHORT, half)


def factors(taken, name, count):
    if taken.optional(name, (count,)) is None:
        return None
    tensor = taken.tensors[name]
    values = list(view(tensor.address, count, "f")) if tensor.type == F32 else []
    if not values or not all(0 < value < LARGEST_FACTOR for value in values):  # refuses not-a-number too
        raise ModelFileError("rotary factors are unusable", expected="positive F32 numbers", found=values[:4], where=name)
    return values


def refuse_leftovers(taken, idle):
    """Raises for the first tensor without a reader; `idle` are the layers that do not run, whose tensors are no concern.

    Nor are placeholders, which hold no numbers."""
    used = set(taken.used)
    for name, tensor in taken.tensors.items():
        if name not in used and 0 not in tensor.shape and names.layer_index(name) not in idle:
            raise UnsupportedError(
                "the family record has no use for a tensor of this file",
                found=f"{name} {list(taken.tensors[name].shape)}",
                remedy="ignoring it would change the results; the architecture variant needs its own record",
            )
