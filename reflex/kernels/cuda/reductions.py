"""Sums and maxima over a warp or a block, always in the same order."""

from numba import cuda
from numba.types import float32, int32, int64, uint32

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


@device
def shuffled(value, lane):
    """The 64-bit value that another lane brings."""
    low = ptx.shfl_idx_i(int32(value), lane)
    high = ptx.shfl_idx_i(int32(value >> 32), lane)
    return int64((int64(high) << 32) | int64(uint32(low)))


@device
def warp_scan(value):
    """Sum over this lane and all lower ones."""
    lane = int32(cuda.threadIdx.x & 31)
    for step in range(5):
        apart = int32(1 << step)
        other = shuffled(value, int32(max(int32(lane - apart), int32(0))))
        if lane >= apart:
            value = int64(value + other)
    return value


@device
def block_scan(value, cells):
    """(sum over this thread and all lower ones, sum over all) for a block of 1024; `cells`: 32 shared int64, free at once."""
    lane, warp = int32(cuda.threadIdx.x & 31), int32(cuda.threadIdx.x >> 5)
    value = warp_scan(value)
    if lane == 31:
        cells[uint32(warp)] = value
    cuda.syncthreads()
    sums = warp_scan(int64(cells[uint32(lane)]))
    before = shuffled(sums, int32(max(int32(warp - 1), int32(0))))
    if warp > 0:
        value = int64(value + before)
    total = shuffled(sums, int32(31))
    cuda.syncthreads()
    return value, total
