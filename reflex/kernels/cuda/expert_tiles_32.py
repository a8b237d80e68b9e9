"""expert_tiles_32 (see expert_tiles.py): 64 weight rows for 32 pairs; four groups of warps share the columns."""

from .expert_tiles import SIGNATURE, product
from .export import kernel
from .linear_tiles_32 import SHAPE

kernel(SIGNATURE, threads=SHAPE.threads, name="expert_tiles_32")(product(SHAPE, __name__))
