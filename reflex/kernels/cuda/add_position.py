"""add_position_<TYPE>: rows of a table of positions, decoded and added (ops/add_position.py), for every block format.

Enumerates reflex/quant: a new format file needs no change here. Grid: (ceil(columns / 256), rows).
"""

from numba import cuda
from numba.types import float32, int32, int64

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .export import device, kernel

THREADS = 256


def _add_position(block):
    element = device(load(block.name).unpack(memory))
    size, nbytes = block.elements, block.nbytes
    shift, last = size.bit_length() - 1, size - 1  # sizes are powers of two

    def add_position(weights, positions, x, columns):
        """weights: blocks[context, columns / elements], positions: int32[rows], x: float32[rows, columns]."""
        ptx.pdl_launch()
        ptx.pdl_wait()
        column, row = int32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x), int32(cuda.blockIdx.y)
        if column < columns:
            at = (int64(positions[row]) * int64(columns >> shift) + int64(column >> shift)) * nbytes
            place = int32(row * columns + column)
            x[place] = float32(x[place] + element(ptx.address(weights, at), int64(column & last)))

    return add_position


for _block in TYPES.values():
    kernel("BIFi", threads=THREADS, name=f"add_position_{_block.name}")(_add_position(_block))
