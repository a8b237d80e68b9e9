"""add: x += scale * y. Grid: any; one thread per element."""

from numba import cuda
from numba.types import int32

from . import ptx
from .export import kernel


@kernel("FFif", threads=256)
def add(x, y, count, scale):
    ptx.pdl_launch()
    ptx.pdl_wait()
    i = int32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i < count:
        x[i] = x[i] + scale * y[i]
