"""Per-layer embeddings: a small vector of its own for every layer and token, from a table and from the embedding (Gemma 3n and 4).

Called by arch/sizes.py and arch/tensors.py for families that have them.
"""

from ..errors import ModelFileError
from . import names
from .sizes import MAX_SIZE

LARGEST = 1 << 16


class Inputs:
    """Where the vectors of all layers come from; `width` is that of one."""

    __slots__ = ("matrix", "norm", "table", "width")


def read_inputs(file, key, spec):
    """Sets spec.inputs, None where the file has no such embeddings."""
    name = key + "embedding_length_per_layer_input"
    width = file.u(name)
    if width > LARGEST or width * len(spec.layers) > MAX_SIZE:
        raise ModelFileError("a size in the metadata is out of range", expected=f"0 to {LARGEST}", found=width, where=name)
    if width:
        spec.inputs = Inputs()
        spec.inputs.width = width


def read_input_tensors(taken, spec):
    """Names the tensors in front of the layers, and those of every layer."""
    made = spec.inputs
    every = made.width * len(spec.layers)
    made.table = taken.need(names.INPUT_EMBEDDING + ".weight", (every, spec.vocabulary))
    made.matrix = taken.matrix(names.INPUT_MATRIX, spec.width, every, False)
    made.norm = taken.need(names.INPUT_NORM + ".weight", (made.width,))
    for layer in spec.layers:
        start = names.prefix(layer.index)
        layer.input_gate = taken.matrix(start + names.LAYER_INPUT_GATE, spec.width, made.width, False)
        layer.input_proj = taken.matrix(start + names.LAYER_INPUT_PROJ, made.width, spec.width, False)
        layer.input_norm = taken.norm(start + names.LAYER_INPUT_NORM, spec.width)
