"""group_rmsnorm: norms of the groups of a row's columns, in place (ops/group_rmsnorm.py, head_l2norm.py). Grid: (groups, rows).

Flags: WEIGHTED; GATED: of silu(y) * o (ops/gated.py)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import kernel
from .gated import silu
from .reductions import block_sum
from .rmsnorm import inverse_rms

THREADS = 128
WEIGHTED, GATED = 1, 2


@kernel("FFFiiiif", threads=THREADS)
def group_rmsnorm(y, w, o, groups, size, divisor, flags, eps):
    """y, o: float32[rows, groups * size], w: float32[groups * size]; by the root of sum / divisor + eps."""
    cells = cuda.shared.array(32, float32)
    ptx.pdl_launch()
    ptx.pdl_wait()
    group = int32(cuda.blockIdx.x)
    base, own = int32((cuda.blockIdx.y * groups + group) * size), int32(group * size)
    total = float32(0)
    i = int32(cuda.threadIdx.x)
    while i < size:
        value = y[int32(base + i)]
        if flags & GATED != 0:
            value = float32(silu(value) * o[int32(base + i)])
            y[int32(base + i)] = value
        total = ptx.fmaf(value, value, total)
        i = int32(i + THREADS)
    factor = inverse_rms(block_sum(total, cells), divisor, eps)
    i = int32(cuda.threadIdx.x)
    while i < size:
        value = float32(factor * y[int32(base + i)])
        if flags & WEIGHTED != 0:
            value = float32(value * w[int32(own + i)])
        y[int32(base + i)] = value
        i = int32(i + THREADS)
