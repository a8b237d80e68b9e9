"""temper: x *= 1 + scale ln(floor((position + ahead) / length) + 1) (ops/temper.py). Grid: (ceil(columns / 1024), rows)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .exponential import logarithm
from .export import kernel
from .quads import load4, store4


@kernel("FIiiif", threads=256)
def temper(x, positions, columns, length, ahead, scale):
    """x: float32[rows, columns], positions: int32[rows]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at, row = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2), int32(cuda.blockIdx.y)
    left, aligned = int32(columns - at), (columns & 3) == 0
    steps = ptx.quotient(int32(positions[row] + ahead), length)
    factor = ptx.fmaf(scale, logarithm(float32(steps + 1)), float32(1))
    place = int32(row * columns + at)
    a, b, c, d = load4(x, place, left, aligned)
    store4(x, place, left, aligned, float32(a * factor), float32(b * factor), float32(c * factor), float32(d * factor))
