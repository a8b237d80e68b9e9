"""expert_tiles_64 (see expert_tiles.py): 128 weight rows for 64 pairs. Before sm_90 there are too few registers for it."""

from .expert_tiles import SIGNATURE, product
from .export import kernel
from .linear_tiles_64 import SHAPE

kernel(SIGNATURE, threads=SHAPE.threads, blocks=2, name="expert_tiles_64", since=90)(product(SHAPE, __name__))
