"""A model some of whose tensors have another type, in memory: nothing is written to a disk.

The changed tensors are decoded, encoded again and laid into a GGUF file that exists in memory only. `File.overlay` (gguf/reader.py)
puts it over the model's own file, so that every backend reads it like one more shard. Owns the choice of tensors by name or regular
expression. Refuses types whose blocks do not divide the rows, and patterns that match nothing. `Model.with_types` calls this.
"""

import os
import re
from math import prod

import numpy as np

from .. import quant
from ..errors import InvalidInputError, ModelFileError, OutOfMemoryError, closest
from ..gguf import writer
from ..gguf.header import Tensor
from ..gguf.limits import ALIGNMENT_DEFAULT
from ..native import view
from ..quant.types import by_name, row_bytes
from .tensors import pieces


def chosen(file, types):
    """{tensor name: BlockType} of the tensors to which `types` gives another type than they have.

    `types`: {tensor name, or regular expression that is searched for in the names of matrices: type name}; later ones win."""
    found = {}
    for pattern, kind in types.items():
        block = by_name(kind)
        for tensor in matching(file, pattern):
            check_fits(tensor, block)
            found[tensor.name] = block
    return {name: block for name, block in found.items() if block.id != file.tensors[name].type}


def matching(file, pattern):
    """The Tensors that a name or regular expression means, at least one."""
    if pattern in file.base:
        return [file.tensors[pattern]]
    try:
        search = re.compile(pattern).search
    except re.error as error:
        message = "this is neither a tensor nor a regular expression"
        raise InvalidInputError(message, found=str(error), where=repr(pattern)) from None
    found = [tensor for tensor in file.base.values() if is_matrix(tensor) and search(tensor.name)]
    if not found:
        expected = f"a name or expression that fits a matrix, like {closest(pattern, file.base)}"
        raise InvalidInputError("no tensor is meant by this", expected, repr(pattern), file.path)
    return found


def is_matrix(tensor):
    """Whether a regular expression may mean this tensor: vectors (norms, biases) lose much and save nothing."""
    return len(tensor.shape) > 1 and tensor.elements > 0


def fits(tensor, block):
    """Whether a row of the tensor is a whole number of blocks."""
    return tensor.shape[0] % block.elements == 0


def check_fits(tensor, block):
    if not fits(tensor, block):
        expected = f"rows of a multiple of {block.elements} values"
        raise InvalidInputError(f"{block.name} does not fit this tensor", expected, str(tensor.shape[0]), tensor.name)


def encoded(tensor, block, importance=None):
    """Yield the bytes of `tensor` in the format `block`, some rows at a time. `importance`: one float per column, or per column of
    each of several matrices."""
    columns, count = tensor.shape[0], prod(tensor.shape[2:])
    weights = [None] * count if importance is None else of_matrices(importance, tensor, count)
    nbytes = tensor.nbytes // count
    for i in range(count):
        at = tensor.address + i * nbytes
        matrix = Tensor(tensor.name, tensor.type, tensor.shape[:2], at, nbytes, tensor.elements // count)
        for values in pieces(matrix):
            yield quant.encode(block.name, values.reshape(-1, columns), weights[i])


def of_matrices(importance, tensor, count):
    """The importance of the columns of each matrix of a tensor."""
    values = np.asarray(importance, np.float32).reshape(-1)
    columns = tensor.shape[0]
    if values.size not in (columns, count * columns):
        raise InvalidInputError("this importance is of another tensor", f"{columns} values", str(values.size), tensor.name)
    return [values[i * columns : (i + 1) * columns] if values.size > columns else values for i in range(count)]


class Overlay:
    """A file in memory with the changed tensors of `file`, which a model has open; `apply` puts it over the same file opened
    again."""

    def __init__(self, file, types, importance=None):
        changes = chosen(file, types)
        kept = [file.tensors[name] for name in file.overlaid if name not in changes]
        rows = [(tensor.name, tensor.type, tensor.shape, tensor.nbytes) for tensor in kept]
        for name, block in changes.items():
            tensor = file.tensors[name]
            nbytes = tensor.elements // tensor.shape[0] * row_bytes(block.id, tensor.shape[0])
            rows.append((name, block.id, tensor.shape, nbytes))
        self.stamps = [shard.stamp for shard in file.shards[: file.own]]
        self.descriptor = None
        if not rows:
            return
        self.descriptor = os.memfd_create("reflex tensors")
        try:
            start, offsets = writer.header({}, rows, ALIGNMENT_DEFAULT)
            self._write(start, 0)
            contents = [[view(tensor.address, tensor.nbytes)] for tensor in kept]
            weights = importance or {}
            contents += [encoded(file.tensors[name], block, weights.get(name)) for name, block in changes.items()]
            for offset, parts in zip(offsets, contents, strict=True):
                for part in parts:
                    offset = self._write(part, offset)
            os.ftruncate(self.descriptor, offsets[-1] + rows[-1][3])
        except BaseException:
            self.close()
            raise

    def _write(self, data, offset):
        """Write all of `data`; returns the offset behind it."""
        left = memoryview(data).cast("B")
        while left:
            try:
                count = os.pwrite(self.descriptor, left, offset)
            except OSError as error:
                remedy = "change fewer at once"
                raise OutOfMemoryError("no memory for changed tensors", found=error.strerror, remedy=remedy) from None
            left, offset = left[count:], offset + count
        return offset

    def apply(self, file):
        """Put the changed tensors over `file`."""
        if [shard.stamp for shard in file.shards] != self.stamps:
            raise ModelFileError("the file was replaced or rewritten while it was open", where=file.path, remedy="load it again")
        if self.descriptor is not None:
            file.overlay(f"/proc/self/fd/{self.descriptor}")

    def close(self):
        """Give up the descriptor; what is mapped stays."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
