"""expert_tiles_32 (see expert_tiles.py): 64 weight rows for 32 pairs; two groups of warps share the columns."""

from .expert_tiles import SIGNATURE, product
from .export import kernel
from .linear_tiles import Shape

SHAPE = Shape(tokens=32, row_warps=2, splits=2, stages=3)
kernel(SIGNATURE, threads=SHAPE.threads, name="expert_tiles_32")(product(SHAPE, __name__))
