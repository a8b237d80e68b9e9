"""select: the wanted rows of x, one after another (ops/select.py); not in place. Grid: (ceil(columns / 1024), wanted rows)."""

from numba import cuda
from numba.types import int32

from . import ptx
from .export import kernel
from .quads import load4, store4


@kernel("FIFi", threads=256)
def select(x, wanted, out, columns):
    """x: float32[rows, columns], wanted: row numbers, out: float32[wanted rows, columns]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
    left, aligned = int32(columns - at), (columns & 3) == 0
    row = int32(cuda.blockIdx.y)
    a, b, c, d = load4(x, int32(wanted[row] * columns + at), left, aligned)
    store4(out, int32(row * columns + at), left, aligned, a, b, c, d)
