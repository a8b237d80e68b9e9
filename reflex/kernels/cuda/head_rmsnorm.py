"""head_rmsnorm: rmsnorm of the first `normed` dimensions of each head of a row, in place (ops/head_rmsnorm.py), by `weighted` with
weights. Grid: (ceil(heads / 8), rows)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import device, kernel
from .quads import load4, store4, weights4
from .reductions import warp_sum
from .rmsnorm import inverse_rms


@device
def factors(w, weighted, at, left):
    """Four weights, or ones."""
    a, b, c, d = float32(1), float32(1), float32(1), float32(1)
    if weighted != 0:
        a, b, c, d = weights4(w, at, left)
    return a, b, c, d


@kernel("FFiiiif", threads=256)
def head_rmsnorm(q, w, weighted, heads, head_dim, normed, eps):
    """q: float32[rows, heads * head_dim], w: float32[normed]. One warp per head."""
    ptx.pdl_launch()
    first = int32((cuda.threadIdx.x & 31) << 2)
    a, b, c, d = factors(w, weighted, first, int32(normed - first))
    ptx.pdl_wait()
    head = int32((cuda.blockIdx.x << 3) + (cuda.threadIdx.x >> 5))
    base, aligned = int32((cuda.blockIdx.y * heads + head) * head_dim), (head_dim & 3) == 0
    dim = normed if head < heads else int32(0)
    total = float32(0)
    at = first
    while at < dim:
        e, f, g, h = load4(q, int32(base + at), int32(dim - at), aligned)
        total = float32(total + (float32(e * e + f * f) + float32(g * g + h * h)))
        at = int32(at + 128)
    factor = inverse_rms(warp_sum(total), normed, eps)
    at = first
    while at < dim:
        left = int32(dim - at)
        e, f, g, h = load4(q, int32(base + at), left, aligned)
        e, f, g, h = float32(e * factor * a), float32(f * factor * b), float32(g * factor * c), float32(h * factor * d)
        store4(q, int32(base + at), left, aligned, e, f, g, h)
        at = int32(at + 128)
        a, b, c, d = factors(w, weighted, at, int32(dim - at))
