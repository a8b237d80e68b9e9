"""linear_tiles_32 (see linear_tiles.py): 64 weight rows for 32 tokens; four groups of warps share the columns."""

from .export import kernel
from .linear_tiles import SIGNATURE, Shape, product

SHAPE = Shape(tokens=32, row_warps=2, splits=4, stages=2)
kernel(SIGNATURE, threads=SHAPE.threads, name="linear_tiles_32")(product(SHAPE, __name__))
