"""linear_tiles_64 (see linear_tiles.py): 128 weight rows for 64 tokens."""

from .export import kernel
from .linear_tiles import SIGNATURE, Shape, product

SHAPE = Shape(tokens=64, row_warps=4, splits=1, stages=3)
kernel(SIGNATURE, threads=SHAPE.threads, blocks=2, name="linear_tiles_64")(product(SHAPE, __name__))
