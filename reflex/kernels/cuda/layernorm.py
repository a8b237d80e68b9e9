"""layernorm: out = (x - mean) / sqrt(variance + eps) * w + b (ops/layernorm.py). Grid: rows."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import device, kernel
from .quads import load4, store4, weights4
from .reductions import block_sum
from .rmsnorm import STEP, THREADS, inverse_rms

WEIGHT, BIAS = 1, 2  # flags: which of the two there are


@device
def factors(w, at, left, there):
    """Four values of w, ones where there is none."""
    a, b, c, d = float32(1), float32(1), float32(1), float32(1)
    if there != 0:
        a, b, c, d = weights4(w, at, left)
    return a, b, c, d


@device
def terms(b, at, left, there):
    """Four values of b, zeros where there is none."""
    e, f, g, h = float32(0), float32(0), float32(0), float32(0)
    if there != 0:
        e, f, g, h = weights4(b, at, left)
    return e, f, g, h


@device
def spread(a, b, c, d, mean, left):
    """Sum of the squared differences to the mean of up to four values."""
    total = float32(0)
    if left > 0:
        total = float32((a - mean) * (a - mean))
    if left > 1:
        total = float32(total + (b - mean) * (b - mean))
    if left > 2:
        total = float32(total + (c - mean) * (c - mean))
    if left > 3:
        total = float32(total + (d - mean) * (d - mean))
    return total


@kernel("FFFFiif", threads=THREADS)
def layernorm(x, w, b, out, columns, flags, eps):
    """x, out: float32[rows, columns], which may be the same; w, b: float32[columns], where flags say so. A block per row, whose
    first STEP values stay in registers; the variance comes from differences to the mean, so that a large mean costs no digits."""
    sums = cuda.shared.array(32, float32)
    squares = cuda.shared.array(32, float32)
    ptx.pdl_launch()
    at = int32(cuda.threadIdx.x << 2)
    has_w, has_b = int32(flags & WEIGHT), int32(flags & BIAS)
    p, q, r, s = factors(w, at, int32(columns - at), has_w)
    t, u, v, z = terms(b, at, int32(columns - at), has_b)
    ptx.pdl_wait()
    row, aligned = int32(cuda.blockIdx.x * columns), (columns & 3) == 0
    e, f, g, h = load4(x, int32(row + at), int32(columns - at), aligned)
    total = float32(float32(e + f) + float32(g + h))
    past = int32(at + STEP)
    while past < columns:
        i, j, k, m = load4(x, int32(row + past), int32(columns - past), aligned)
        total = float32(total + (float32(i + j) + float32(k + m)))
        past = int32(past + STEP)
    mean = float32(block_sum(total, sums) * ptx.rcp(float32(columns)))
    total = spread(e, f, g, h, mean, int32(columns - at))
    past = int32(at + STEP)
    while past < columns:
        i, j, k, m = load4(x, int32(row + past), int32(columns - past), aligned)
        total = float32(total + spread(i, j, k, m, mean, int32(columns - past)))
        past = int32(past + STEP)
    factor = inverse_rms(block_sum(total, squares), columns, eps)
    while at < columns:
        left = int32(columns - at)
        e, f = ptx.fmaf(float32((e - mean) * factor), p, t), ptx.fmaf(float32((f - mean) * factor), q, u)
        g, h = ptx.fmaf(float32((g - mean) * factor), r, v), ptx.fmaf(float32((h - mean) * factor), s, z)
        store4(out, int32(row + at), left, aligned, e, f, g, h)
        at = int32(at + STEP)
        left = int32(columns - at)
        e, f, g, h = load4(x, int32(row + at), left, aligned)
        p, q, r, s = factors(w, at, left, has_w)
        t, u, v, z = terms(b, at, left, has_b)
