"""Halves of adapters in another arrangement than their files have: float32 copies in a file in memory, which is laid beside the
model like the adapters themselves.

Two matrices are used in more ways than one. The table of embeddings, where it is the output matrix too, needs B transposed. Those
of latent attention are one per head, and leave the rotated dimensions of queries alone: A and B get zeros for these, and where a
file has both matrices in one, a part of B, or A, for every head. Called by Laid.
"""

from posix import close as _close
from posix import ftruncate, pwrite

from .. import native
from ..backends.sections import rearrange
from ..gguf import writer
from ..gguf.header import open_header
from ..gguf.limits import ALIGNMENT_DEFAULT
from ..quant.types import by_id

CLOSE_ON_EXEC = 1  # MFD_CLOEXEC


class Rearranged:
    """What is to be made, then the file. `add`, then `header`; `release` closes its descriptor."""

    def __init__(self):
        self.made = []  # (name, shape in GGUF's order, tensor, dimensions)
        self.descriptor = -1

    def add(self, name, shape, tensor, *dimensions, first=0):
        """A tensor called `name` of values of `tensor` from the value number `first` on, zeros elsewhere. `dimensions`, outermost
        first: (count, values from one to the next in `tensor`, in the new one). Returns `name`."""
        self.made.append((name, shape, tensor, first, dimensions))
        return name

    def header(self):
        """The Header of the file, None where there is nothing in it."""
        if not self.made:
            return None
        from posix import memfd_create

        rows = [(name, 0, shape, 4 * elements(shape)) for name, shape, *_ in self.made]
        start, offsets = writer.header({}, rows, ALIGNMENT_DEFAULT)
        self.descriptor = memfd_create("reflex adapter", CLOSE_ON_EXEC)
        pwrite(self.descriptor, start, 0)
        ftruncate(self.descriptor, offsets[-1] + rows[-1][3])
        for (_, shape, *rest), offset in zip(self.made, offsets, strict=True):
            self._write(offset, 4 * elements(shape), *rest)
        return open_header(f"/proc/self/fd/{self.descriptor}")

    def _write(self, offset, size, tensor, first, dimensions):
        library, values = native.library(), 4 * tensor.elements
        room = native.alloc(values + size, "an adapter")
        try:
            getattr(library, "decode_" + by_id(tensor.type).name)(tensor.address, room.address, tensor.elements)
            target, steps = room.address + values, [(count, 4 * here, 4 * there) for count, here, there in dimensions]
            rearrange(library, room.address + 4 * first, target, 4, 4, *steps)
            data = native.view(target, size)
            while data:
                written = pwrite(self.descriptor, data, offset)
                data, offset = data[written:], offset + written
        finally:
            room.free()

    def release(self):
        if self.descriptor >= 0:
            _close(self.descriptor)
            self.descriptor = -1


def elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def turned(made, name, b):
    """B of embeddings, ne = [rank, out], as [out, rank]."""
    rank, out = b.shape[:2]
    return made.add(f"{name} turned", (out, rank), b, (rank, 1, out), (out, rank, 1))


def of_heads(made, name, matrix, layer, a, b):
    """{rows of a matrix of latent attention, as the program uses it (program/latent.py): (A, B, rows of B)}, each one per head, for
    the tensor `matrix` of a layer (arch/spec.py). `name`: of the adapter's pair."""
    m, heads = layer.latent, layer.heads
    rank, wide, high = b.shape[0], m.plain + m.turned, m.rank + m.turned
    if matrix == m.v_b.weight and not m.transposed:
        return {None: (a.name, b.name, None)}
    if matrix == m.k_b.weight and not m.transposed:
        first = made.add(
            f"{name} keys", (wide, rank, heads), a, (heads, m.plain * rank, wide * rank), (rank, m.plain, wide), (m.plain, 1, 1)
        )
        second = (heads, rank * m.rank, rank * high), (rank * m.rank, 1, 1)
        return {None: (first, made.add(f"{name} results", (rank, high, heads), b, *second), None)}
    each = m.plain + layer.value_dim  # rows of a head
    first = made.add(f"{name} keys", (wide, rank, heads), b, (heads, each * rank, wide * rank), (rank, 1, wide), (m.plain, rank, 1))
    second = (heads, 0, rank * high), (m.rank, 1, rank), (rank, m.rank, 1)
    second = made.add(f"{name} results", (rank, high, heads), a, *second)
    values = made.add(f"{name} values", (m.rank, rank, heads), a, (heads, 0, m.rank * rank), (m.rank * rank, 1, 1))
    return {m.k_b.rows: (first, second, None), m.v_b.rows: (values, b.name, m.v_b.rows)}
