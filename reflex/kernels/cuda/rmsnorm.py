"""rmsnorm: out = x / sqrt(mean(x^2) + eps) * w (ops/rmsnorm.py); rmsnorm_add adds that to a residual. Grid: rows."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import device, kernel
from .quads import load4, store4, weights4
from .reductions import block_sum

THREADS = 512
STEP = 4 * THREADS  # columns of one pass; the first pass stays in registers


@device
def inverse_rms(total, columns, eps):
    return ptx.rsqrt(ptx.fmaf(total, ptx.rcp(float32(columns)), eps))


@device
def norm_row(x, w, out, columns, eps, scale, residual):
    """One block per row: out = scale * norm, on top of what is there if `residual`."""
    cells = cuda.shared.array(32, float32)
    ptx.pdl_launch()
    at = int32(cuda.threadIdx.x << 2)
    p, q, r, s = weights4(w, at, int32(columns - at))
    ptx.pdl_wait()
    row, aligned = int32(cuda.blockIdx.x * columns), (columns & 3) == 0
    a, b, c, d = load4(x, int32(row + at), int32(columns - at), aligned)
    total = float32(float32(a * a + b * b) + float32(c * c + d * d))
    past = int32(at + STEP)
    while past < columns:
        e, f, g, h = load4(x, int32(row + past), int32(columns - past), aligned)
        total = float32(total + (float32(e * e + f * f) + float32(g * g + h * h)))
        past = int32(past + STEP)
    factor = inverse_rms(block_sum(total, cells), columns, eps)
    while at < columns:
        left = int32(columns - at)
        if residual:
            e, f, g, h = load4(out, int32(row + at), left, aligned)
            e, f = ptx.fmaf(scale, float32(a * factor * p), e), ptx.fmaf(scale, float32(b * factor * q), f)
            g, h = ptx.fmaf(scale, float32(c * factor * r), g), ptx.fmaf(scale, float32(d * factor * s), h)
        else:
            e, f, g, h = float32(a * factor * p), float32(b * factor * q), float32(c * factor * r), float32(d * factor * s)
        store4(out, int32(row + at), left, aligned, e, f, g, h)
        at = int32(at + STEP)
        left = int32(columns - at)
        a, b, c, d = load4(x, int32(row + at), left, aligned)
        p, q, r, s = weights4(w, at, left)


@kernel("FFFif", threads=THREADS)
def rmsnorm(x, w, out, columns, eps):
    """x, out: float32[rows, columns], which may be the same; w: float32[columns]."""
    norm_row(x, w, out, columns, eps, float32(1), False)


@kernel("FFFiff", threads=THREADS)
def rmsnorm_add(y, w, x, columns, eps, scale):
    """x += scale * rmsnorm(y). x, y: float32[rows, columns], not the same; w: float32[columns]."""
    norm_row(y, w, x, columns, eps, scale, True)
