"""The block formats of ggml: one table of sizes (`types`) and one file per format, found by its name.

A format file `<name in lower case>.py` has the layout in its docstring and two functions:

    decode(blocks)    numpy: uint8 [n, bytes per block] -> float32 [n, elements per block]
    unpack(memory)    -> element(block address, index) -> float32, from accessors only; `plain.Memory` defines them.
                      It stays within what every Numba compiler accepts, so that all kernels close over the same code.

Both give the same bits. `encoders` has the other direction. This module only finds them; it imports no format and no numpy
until asked.
"""


def load(name):
    """The module of the format called `name` (ggml's spelling, any case); UnsupportedError with the closest names."""
    from importlib import import_module

    from .types import by_name

    return import_module(f"{__name__}.{by_name(name).name.lower()}")


def decode(name, data, shape=None):
    """All values in `data`, a whole number of blocks of format `name`: float32 [elements], or of the given shape.

    `data` is any buffer. Raises UnsupportedError for an unknown name, ModelFileError for a partial block or another number of
    values than the shape has.
    """
    import numpy as np

    from ..errors import ModelFileError
    from .types import by_name

    block = by_name(name)
    raw = np.frombuffer(data, dtype=np.uint8)
    if raw.size % block.nbytes:
        raise ModelFileError(f"data is not a whole number of {block.name} blocks", f"a multiple of {block.nbytes} bytes", raw.size)
    values = load(name).decode(raw.reshape(-1, block.nbytes)).reshape(-1)
    if shape is None:
        return values
    if values.size != np.prod(shape, dtype=np.int64):
        raise ModelFileError(f"{block.name} blocks do not fill the shape", f"{tuple(shape)}", f"{values.size} values")
    return values.reshape(shape)


def encode(name, values, importance=None, threads=None):
    """Rows of float32 as packed blocks of format `name`; see `encoders.encode`."""
    from importlib import import_module  # a plain import would make every encoder a source of every kernel

    return import_module(f"{__name__}.encoders").encode(name, values, importance, threads)


def requantize(values, name, importance=None):
    """The same bytes end to end: uint8 [bytes], as a tensor of a file has them."""
    return encode(name, values, importance).reshape(-1)
