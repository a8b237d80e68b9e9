"""gate_rows: y *= sigmoid(w . h), one factor per row (ops/gate_rows.py). Grid: rows."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .exponential import exponential
from .export import kernel
from .quads import load4, store4, weights4
from .reductions import block_sum

THREADS = 512
STEP = 4 * THREADS  # columns of one pass


@kernel("FFFii", threads=THREADS)
def gate_rows(y, h, w, columns, inputs):
    """y: float32[rows, columns], h: float32[rows, inputs], w: float32[inputs]."""
    cells = cuda.shared.array(32, float32)
    ptx.pdl_launch()
    at = int32(cuda.threadIdx.x << 2)
    p, q, r, s = weights4(w, at, int32(inputs - at))
    ptx.pdl_wait()
    row, aligned = int32(cuda.blockIdx.x * inputs), (inputs & 3) == 0
    total = float32(0)
    while at < inputs:
        a, b, c, d = load4(h, int32(row + at), int32(inputs - at), aligned)
        total = float32(total + (float32(a * p + b * q) + float32(c * r + d * s)))
        at = int32(at + STEP)
        p, q, r, s = weights4(w, at, int32(inputs - at))
    total = block_sum(total, cells)
    factor = ptx.rcp(float32(float32(1) + exponential(float32(-max(total, float32(-80))))))
    at = int32(cuda.threadIdx.x << 2)
    row, aligned = int32(cuda.blockIdx.x * columns), (columns & 3) == 0
    while at < columns:
        left = int32(columns - at)
        a, b, c, d = load4(y, int32(row + at), left, aligned)
        a, b, c, d = float32(a * factor), float32(b * factor), float32(c * factor), float32(d * factor)
        store4(y, int32(row + at), left, aligned, a, b, c, d)
        at = int32(at + STEP)
