"""How far the tensors of one file are from those of another, tensor by tensor.

Owns the decoding in pieces, so that no tensor need fit in memory as floats, and the numbers. Refuses files whose tensors have other
names or shapes. Called by compare, overlay and sensitivity.
"""

from math import inf, sqrt

import numpy as np

from .. import quant
from ..errors import InvalidInputError, closest
from ..native import libc, view
from ..quant.types import by_id
from ..records import Record

PIECE = 1 << 20  # values decoded at once, at least a row


class TensorDifference(Record):
    """One tensor of both files."""

    name: str
    shape: tuple[int, ...]  # GGUF order: the fastest dimension first
    type_a: str
    type_b: str
    bytes_a: int
    bytes_b: int
    error: float  # root of the summed squares of b - a over that of a: 0 equal; 1 as far as nothing at all
    cosine: float  # of the angle between both as vectors
    largest: float  # |b - a|
    __slots__ = (*__annotations__,)


def pieces(tensor):
    """Yield a tensor's values, some rows at a time, as flat float32 arrays of about PIECE values."""
    block, columns = by_id(tensor.type), tensor.shape[0]
    step = max(1, PIECE // max(1, columns)) * columns
    for at in range(0, tensor.elements, step or 1):
        count = min(step, tensor.elements - at)
        address = tensor.address + at // block.elements * block.nbytes
        yield quant.decode(block.name, view(address, count // block.elements * block.nbytes))


def dot(x, y):
    """Sum of the products of two vectors. Not by BLAS, whose threads wait for each other where cores have other work."""
    return float(np.einsum("i,i->", x, y))


class Sums:
    """What the numbers about two tensors are made of: sums over all values, in float64."""

    __slots__ = ("change", "largest", "product", "square_a", "square_b")

    def __init__(self):
        self.square_a = self.square_b = self.product = 0.0
        self.change = 0.0  # of (b - a) squared
        self.largest = 0.0  # |b - a|


def sums(a, b):
    """The Sums of two tensors of one shape."""
    found = Sums()
    for x, y in zip(pieces(a), pieces(b), strict=True):
        x, y = x.astype(np.float64), y.astype(np.float64)
        found.square_a += dot(x, x)
        found.square_b += dot(y, y)
        found.product += dot(x, y)
        y -= x
        found.change += dot(y, y)
        found.largest = float(np.maximum(found.largest, np.abs(y).max()))  # keeps NaN
    return found


def difference(a, b):
    """The TensorDifference of two tensors of one shape."""
    facts = a.name, a.shape, by_id(a.type).name, by_id(b.type).name, a.nbytes, b.nbytes
    if same_bytes(a, b):
        return TensorDifference(*facts, 0.0, 1.0, 0.0)
    found = sums(a, b)
    lengths = sqrt(found.square_a) * sqrt(found.square_b)
    cosine = found.product / lengths if lengths else float(found.square_a == found.square_b)
    return TensorDifference(*facts, ratio_of(found.change, found.square_a), cosine, found.largest)


def ratio_of(change, square):
    """The relative error that two sums of squares mean."""
    return sqrt(change / square) if square else (inf if change else 0.0)


def same_bytes(a, b):
    """Whether two tensors of one shape are the same, byte for byte."""
    return a.type == b.type and not libc("memcmp", 3)(a.address, b.address, a.nbytes) & 0xFFFFFFFF


def pairs(a, b):
    """[(tensor of a, tensor of b)] of two files in the order of a; InvalidInputError where they are not of one model."""
    for this, other, names in ((a, b, "A"), (b, a, "B")):
        for name in this.tensors:
            if name not in other.tensors:
                found = f"none of this name; close are {closest(name, other.tensors)}"
                expected = f"tensor {name} of {names} in both"
                raise InvalidInputError("the two files are not of one model", expected, found, other.path)
    for name, tensor in a.tensors.items():
        if tensor.shape != b.tensors[name].shape:
            found = str(list(b.tensors[name].shape))
            raise InvalidInputError("the two files are not of one model", str(list(tensor.shape)), found, f"{b.path} tensor {name}")
    return [(tensor, b.tensors[name]) for name, tensor in a.tensors.items()]


def described(file):
    """`path`, and what was changed in memory: how results name such a model."""
    if not file.overlaid:
        return file.path
    kinds = sorted({by_id(file.tensors[name].type).name for name in file.overlaid})
    return f"{file.path} with {len(file.overlaid)} tensors in {', '.join(kinds)}"
