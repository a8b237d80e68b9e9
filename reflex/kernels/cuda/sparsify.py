"""sparsify: x = max(x - mean - deviations * standard deviation of the row, 0), in place (ops/sparsify.py). Grid: rows."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import kernel
from .reductions import block_sum

THREADS = 512


@kernel("Fif", threads=THREADS)
def sparsify(x, n, deviations):
    """x: float32[rows, n]."""
    cells, more = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    ptx.pdl_launch()
    ptx.pdl_wait()
    row, tid = int32(cuda.blockIdx.x * n), int32(cuda.threadIdx.x)
    total, at = float32(0), tid
    while at < n:
        total = float32(total + x[int32(row + at)])
        at = int32(at + THREADS)
    mean = float32(block_sum(total, cells) / float32(n))
    total, at = float32(0), tid
    while at < n:
        apart = float32(x[int32(row + at)] - mean)
        total = ptx.fmaf(apart, apart, total)
        at = int32(at + THREADS)
    variance = float32(block_sum(total, more) / float32(n - 1))
    least = ptx.fmaf(deviations, float32(variance * ptx.rsqrt(max(variance, float32(1e-30)))), mean)
    at = tid
    while at < n:
        place = int32(row + at)
        x[place] = max(float32(x[place] - least), float32(0))
        at = int32(at + THREADS)
