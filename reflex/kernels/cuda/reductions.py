"""Sums and maxima over a warp or a block, always in the same order."""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device


@device
def warp_sum(value):
    """Sum over the 32 lanes, the same bits in all of them."""
    for step in range(5):
        value = float32(value + ptx.shfl_xor(value, int32(16 >> step)))
    return value


@device
def warp_max(value):
    for step in range(5):
        value = max(value, ptx.shfl_xor(value, int32(16 >> step)))
    return value


@device
def block_sum(value, cells):
    """Sum over the threads of the block in a fixed order; `cells`: 32 shared float32 that nothing else uses meanwhile."""
    t = uint32(cuda.threadIdx.x)
    value = warp_sum(value)
    if (t & 31) == 0:
        cells[uint32(t >> 5)] = value
    cuda.syncthreads()
    part = float32(0)
    if uint32((t & 31) << 5) < cuda.blockDim.x:
        part = cells[uint32(t & 31)]
    return warp_sum(part)
