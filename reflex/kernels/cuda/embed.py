"""embed_<TYPE>: rows of a table by number, decoded and scaled (ops/embed.py), or added (ops/add_position.py), for every block
format.

Enumerates reflex/quant: a new format file needs no change here. Grid: (ceil(columns / 256), rows).
"""

from numba import cuda
from numba.types import float32, int32, int64

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .export import device, kernel

THREADS = 256


def _embed(block):
    element = device(load(block.name).unpack(memory))
    size, nbytes = block.elements, block.nbytes
    shift, last = size.bit_length() - 1, size - 1  # sizes are powers of two

    def embed(weights, ids, out, columns, scale, adding):
        """weights: blocks[vocabulary, columns / elements], ids: int32[rows], out: float32[rows, columns]: set, or added to."""
        ptx.pdl_launch()
        ptx.pdl_wait()
        column, row = int32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x), int32(cuda.blockIdx.y)
        if column < columns:
            at = (int64(ids[row]) * int64(columns >> shift) + int64(column >> shift)) * nbytes
            place = int32(row * columns + column)
            value = float32(element(ptx.address(weights, at), int64(column & last)) * scale)
            if adding:
                value = float32(out[place] + value)
            out[place] = value

    return embed


for _block in TYPES.values():
    kernel("BIFifi", threads=THREADS, name=f"embed_{_block.name}")(_embed(_block))
