"""head_layernorm: layernorm of each head of a row, each with weights of its own, in place (ops/head_layernorm.py).

Grid: (ceil(heads / 8), rows).
"""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import kernel
from .reductions import warp_sum
from .rmsnorm import inverse_rms


@kernel("FFiif", threads=256)
def head_layernorm(q, w, heads, head_dim, eps):
    """q: float32[rows, heads * head_dim], w: float32[heads, head_dim]. One warp per head."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    head, lane = int32((cuda.blockIdx.x << 3) + (cuda.threadIdx.x >> 5)), int32(cuda.threadIdx.x & 31)
    base, weights = int32((cuda.blockIdx.y * heads + head) * head_dim), int32(head * head_dim)
    dim = head_dim if head < heads else int32(0)
    share = ptx.rcp(float32(head_dim))
    total = float32(0)
    at = lane
    while at < dim:
        total = float32(total + q[int32(base + at)])
        at = int32(at + 32)
    mean = float32(warp_sum(total) * share)
    total = float32(0)
    at = lane
    while at < dim:
        x = float32(q[int32(base + at)] - mean)
        total = float32(total + x * x)
        at = int32(at + 32)
    factor = inverse_rms(warp_sum(total), head_dim, eps)
    at = lane
    while at < dim:
        x = float32(q[int32(base + at)] - mean)
        q[int32(base + at)] = float32(x * factor * ptx.ldgf(w, int32(weights + at)))
        at = int32(at + 32)
