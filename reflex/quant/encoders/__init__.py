"""Encoders: float32 rows to packed blocks, byte for byte what ggml makes. One file per format, found by its name.

A file `<name in lower case>.py` here has IMPORTANCE, how ggml weighs a block's values where it is told what each column matters:

    None                it does not
    "as it is"          by the importance alone
    "row"               times sqrt(mean square of the row + square of the value)
    "block"             times sqrt(mean square of the block + square of the value)
    "twice the block"   the same with twice the mean square

and encoder(v, weighted) -> encode(x, w, out, room), made of what the vector vocabulary `v` offers (reflex/kernels/lanewise.py): it
packs eight blocks at once. x and w: addresses of the values and their weights, element by element, each as eight lanes; out:
address of the first block, the others follow; room: address of scratch. All of it is compiled at build time; `encode` calls it.
A file may also have NEEDED, whether there is no encoding without importance, and tables(), a numpy array made once per process,
whose address is a fifth argument.
"""

from ... import native
from ...errors import InvalidInputError, UnsupportedError, closest
from ..types import TYPES, by_name
from .plain import CONVERSIONS

CHUNK = 1 << 16  # values that a thread takes at a time
SCRATCH = 64 << 10  # bytes; what the kernels need is less


def load(name):
    """The module of the encoder of format `name`."""
    from importlib import import_module

    return import_module(f"{__name__}.{name.lower()}")


def names():
    """Names of all formats that have a file here, in the order of their ids; for the build."""
    from pathlib import Path

    files = {path.stem for path in Path(__file__).parent.glob("*.py")}
    return [block.name for block in TYPES.values() if block.name.lower() in files]


_mapped = []


def library():
    """The compiled encoders; mapped once per process."""
    if not _mapped:
        _mapped.append(native.best_blob("encode"))
    return _mapped[0]


def encodable():
    """Names of the formats that `encode` takes, in ggml's spelling."""
    return [*CONVERSIONS, *(name[7:] for name in library().names() if name.startswith("encode_"))]


def encode(name, values, importance=None, threads=None):
    """Packed blocks of format `name` (ggml's spelling, any case): uint8 [..., bytes per row] of float32 [..., columns].

    `values`: any array of numbers; rows are the last axis and a whole number of blocks. `importance`: how much each column matters,
    [columns], of no effect on formats that do not use it. `threads`: by default the cores this process may use; the bytes do not
    depend on it. UnsupportedError: there is no encoder for that format; InvalidInputError: the shape does not fit, or a value is
    infinite or no number, with its place."""
    import numpy as np

    block = by_name(name)
    if block.name not in encodable():
        known = closest(block.name, encodable())
        raise UnsupportedError(f"nothing can be encoded as {block.name}", f"one like {known}", block.name)
    record = None if block.name in CONVERSIONS else load(block.name)
    rows = np.ascontiguousarray(values, dtype=np.float32)
    columns = rows.shape[-1] if rows.ndim else 0
    if not columns or columns % block.elements:
        what = f"a row of {block.name} is not a whole number of blocks"
        raise InvalidInputError(what, f"a multiple of {block.elements} columns", f"shape {rows.shape}")
    if importance is None and getattr(record, "NEEDED", False):
        raise InvalidInputError(f"{block.name} needs importance", "a number for each column", "none")
    weights = None if importance is None else np.ascontiguousarray(importance, dtype=np.float32).reshape(-1) + np.float32(0)
    if weights is not None and weights.size != columns:
        raise InvalidInputError("importance has another number of columns", columns, weights.size)
    if block.name in CONVERSIONS:
        odd = -1 if np.isfinite(rows).all() else int(np.argmin(np.isfinite(rows)))
        out = CONVERSIONS[block.name](rows.reshape(-1, columns))
    else:
        out = np.empty((rows.size // columns, columns // block.elements * block.nbytes), dtype=np.uint8)
        kernel = getattr(library(), f"encode_{block.name}")
        odd = _in_parallel(kernel, rows, out, columns, weights, _tables(block.name, record), threads)
    if odd >= 0:
        place = tuple(int(i) for i in np.unravel_index(odd, rows.shape))
        raise InvalidInputError("a value cannot be encoded", "finite numbers", rows.reshape(-1)[odd], f"index {place}")
    return out.reshape(*rows.shape[:-1], out.shape[1])


_made = {}


def _tables(name, record):
    """The format's tables, made once; None where it has none."""
    if name not in _made and hasattr(record, "tables"):
        _made[name] = record.tables()
    return _made.get(name)


def _in_parallel(kernel, rows, out, columns, weights, tables, threads):
    """Encode chunks of rows with several threads; the lowest index of a value that is not finite, or -1."""
    from os import sched_getaffinity

    from ...threads import Rooms, together

    most, found = max(1, CHUNK // columns), []
    weights_at, tables_at = (0 if array is None else array.ctypes.data for array in (weights, tables))

    def work(number):
        first = number * most
        taken, at = min(most, len(out) - first), rows.ctypes.data + 4 * columns * first
        room = rooms.take()
        odd = kernel(at, out[first:].ctypes.data, taken, columns, weights_at, room.address, tables_at)
        rooms.give(room)
        if odd >= 0:
            found.append(first * columns + odd)

    with Rooms(SCRATCH, "an encoder's scratch") as rooms:
        together(work, -(-len(out) // most), "an encoder", threads or len(sched_getaffinity(0)))
    return min(found, default=-1)

