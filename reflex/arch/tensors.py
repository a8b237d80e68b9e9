"""Tensors of a model: names every one the program will read, and checks its shape against the metadata.

Shapes are GGUF order, fastest first: a matrix is (in, out). Refuses a missing tensor or a wrong shape (ModelFileError
with expected and found) and a tensor nobody would read (UnsupportedError): such a file wants a computation that its
family record does not describe, and ignoring it would give fluent nonsense. Called by arch.load_spec.
"""

from ..errors import ModelFileError, UnsupportedError
from ..native import view
from . import names
from .spec import Matrix

F32 = 0  # GGML type id of factor tensors
LARGEST_FACTOR = 1e30


class Taken:
    """The tensors of a file and which of them have found a reader."""

    __slots__ = ("tensors", "used")

    def __init__(self, tensors):
        self.tensors = tensors  # {name: tensor}
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

    def optional(self, name, shape):
        return self.need(name, shape) if name in self.tensors else None

    def matrix(self, role, inputs, outputs):
        return Matrix(self.need(role + ".weight", (inputs, outputs)), self.optional(role + ".bias", (outputs,)))


def trimmed(shape):
    """A shape without trailing ones, which writers may or may not store."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return tuple(shape)


def read_tensors(file, family, spec):
    """Fills in the tensor names of spec and of its layers."""
    taken = Taken(file.tensors)
    read_embedding(file, taken, spec)
    for layer in spec.layers:
        read_layer(taken, family, layer, spec.width)
    spec.output_norm = taken.need(names.OUTPUT_NORM + ".weight", (spec.width,))
    read_output(taken, family, spec)
    read_factors(taken, family, spec)
    if len(taken.used) != len(file.tensors):
        refuse_leftovers(taken, range(len(spec.layers), file.u(spec.architecture + ".block_count")))


def read_embedding(file, taken, spec):
    name = names.EMBEDDING + ".weight"
    table = taken.tensors.get(name)
    rows = table.shape[-1] if table is not None and len(table.shape) == 2 else 0
    spec.vocabulary = file.array("tokenizer.ggml.tokens").count if file.has("tokenizer.ggml.tokens") else rows
    spec.embedding = taken.need(name, (spec.width, spec.vocabulary))


def read_layer(taken, family, layer, width):
    start = names.prefix(layer.index)

    def norm(role):
        return taken.need(f"{start}{role}.weight", (width,)) if role else None

    layer.attn_norm = norm(family.attn_norm)
    read_qkv(taken, start, layer, width)
    layer.q_norm = layer.k_norm = None
    if family.head_norm:
        layer.q_norm = taken.need(f"{start}{names.ATTN_Q_NORM}.weight", (layer.key_dim,))
        layer.k_norm = taken.need(f"{start}{names.ATTN_K_NORM}.weight", (layer.key_dim,))
    layer.o = taken.matrix(start + names.ATTN_OUTPUT, layer.heads * layer.value_dim, width)
    layer.attn_out_norm = norm(family.attn_out_norm)
    layer.ffn_norm = norm(family.ffn_norm)
    ff = layer.feed_forward
    if family.gate == "fused":
        both = taken.matrix(start + names.FFN_UP, width, 2 * ff)
        layer.gate = Matrix(both.weight, both.bias, (0, ff))
        layer.up = Matrix(both.weight, both.bias, (ff, ff), ff)
    else:
        layer.gate = taken.matrix(start + names.FFN_GATE, width, ff)
        layer.up = taken.matrix(start + names.FFN_UP, width, ff)
    layer.down = taken.matrix(start + names.FFN_DOWN, ff, width)
    layer.ffn_out_norm = norm(family.ffn_out_norm)


def read_qkv(taken, start, layer, width):
    """Three matrices, or three row ranges of the fused one; a fused matrix may come with separate biases."""
    q, k, v = layer.heads * layer.key_dim, layer.kv_heads * layer.key_dim, layer.kv_heads * layer.value_dim
    fused = start + names.ATTN_QKV
    if fused + ".weight" not in taken.tensors:
        layer.q = taken.matrix(start + names.ATTN_Q, width, q)
        layer.k = taken.matrix(start + names.ATTN_K, width, k)
        layer.v = taken.matrix(start + names.ATTN_V, width, v)
        return
    both = taken.matrix(fused, width, q + k + v)
    parts = []
    for role, first, count in ((names.ATTN_Q, 0, q), (names.ATTN_K, q, k), (names.ATTN_V, q + k, v)):
        bias = both.bias or taken.optional(f"{start}{role}.bias", (count,))
        parts.append(Matrix(both.weight, bias, (first, count), first if both.bias else 0))
    layer.q, layer.k, layer.v = parts


def read_output(taken, family, spec):
    name = names.OUTPUT + ".weight"
    if family.output == "required" or (family.output == "optional" and name in taken.tensors):
        spec.output = taken.matrix(names.OUTPUT, spec.width, spec.vocabulary)
    else:  # tied: the embedding is read again, as a matrix
        spec.output = Matrix(spec.embedding, taken.optional(names.OUTPUT + ".bias", (spec.vocabulary,)))


def read_factors(taken, family, spec):
    """Divisors of the rotary frequencies, for the tables that are scaled."""
    for rotation in spec.rotations:
        half = rotation.dims // 2
        if "freqs" in family.rope_factors:
            rotation.freqs = factors(taken, names.ROPE_FREQS, half)
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


def refuse_leftovers(taken, drafts):
    """Raises for the first tensor without a reader; `drafts` are the layers that do not run, whose tensors are no concern."""
    used = set(taken.used)
    for name in taken.tensors:
        if name not in used and names.layer_index(name) not in drafts:
            raise UnsupportedError(
                "the family record has no use for a tensor of this file",
                found=f"{name} {list(taken.tensors[name].shape)}",
                remedy="ignoring it would change the results; the architecture variant needs its own record",
            )
