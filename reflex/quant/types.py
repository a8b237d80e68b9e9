"""The table of ggml tensor types: id, name, elements per block, bytes per block. Everything that needs a size asks here.

Refuses ids and names that are not in the table, with the id or the closest names. The names are ggml's; the value
layouts are in the file of each type, `reflex/quant/<name in lower case>.py`. Called by the GGUF reader, the backends
and the tests; imports nothing but the errors.

Sizes are those of the block structures in ggml. `gguf` lists 40 bytes for Q8_1, from before its two scales
became half precision; ggml's structure has 36, and a Q8_1 block only ever lives between two kernels.
"""

from ..errors import ModelFileError, UnsupportedError, closest


class BlockType:
    """One way to store numbers: `elements` values in `nbytes` bytes, at no particular alignment."""

    __slots__ = ("elements", "id", "name", "nbytes")

    def __init__(self, id, name, elements, nbytes):
        self.id = id
        self.name = name
        self.elements = elements
        self.nbytes = nbytes

    def __repr__(self):
        return f"{self.name} ({self.elements} elements in {self.nbytes} bytes)"


TYPES = {
    row[0]: BlockType(*row)
    for row in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 36),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}

TRIAL = "Q2_K"  # what is tried where a coarser type is looked for and none was named

_NAMES = {block.name: block for block in TYPES.values()}


def by_id(type_id, where=None):
    """The BlockType of a ggml type id; UnsupportedError naming the id if there is none."""
    block = TYPES.get(type_id)
    if block is None:
        known = ", ".join(str(i) for i in TYPES)
        raise UnsupportedError(f"unknown ggml tensor type {type_id}", f"one of {known}", type_id, where, "convert the model again")
    return block


def by_name(name):
    """The BlockType called `name` in ggml's spelling, any case; UnsupportedError with the closest names otherwise."""
    block = _NAMES.get(name.upper())
    if block is None:
        raise UnsupportedError("unknown quantization type", f"one like {closest(name.upper(), _NAMES)}", name)
    return block


def row_bytes(type_id, columns, where=None):
    """Bytes of one row of `columns` values; ModelFileError unless that is a whole number of blocks."""
    block = by_id(type_id, where)
    if columns % block.elements or columns < 0:
        raise ModelFileError(
            f"a row of {block.name} is not a whole number of blocks", f"a multiple of {block.elements} columns", columns, where
        )
    return columns // block.elements * block.nbytes
