"""linear_tiles_32_narrow (see linear_tiles.py): 32 weight rows for 32 tokens, for matrices of few rows."""

from .export import kernel
from .linear_tiles import SIGNATURE, Shape, product

SHAPE = Shape(tokens=32, row_warps=1, splits=4, stages=2)
kernel(SIGNATURE, threads=SHAPE.threads, blocks=2, name="linear_tiles_32_narrow")(product(SHAPE, __name__))
