"""head_rmsnorm_<act>: z = act(z) * rmsnorm(o) of every head of a row (ops/head_rmsnorm.py, ops/gated.py). Grid: (ceil(heads / 8),
rows)."""

from numba import cuda
from numba.types import float32, int32

from . import gated, ptx
from .export import kernel
from .quads import load4, store4, weights4
from .reductions import warp_sum
from .rmsnorm import inverse_rms


def _gated(act):
    def head_rmsnorm_gated(o, w, z, heads, head_dim, eps):
        """o, z: float32[rows, heads * head_dim], w: float32[head_dim]. One warp per head."""
        ptx.pdl_launch()
        at = int32((cuda.threadIdx.x & 31) << 2)
        a, b, c, d = weights4(w, at, int32(head_dim - at))
        ptx.pdl_wait()
        head = int32((cuda.blockIdx.x << 3) + (cuda.threadIdx.x >> 5))
        base, aligned = int32((cuda.blockIdx.y * heads + head) * head_dim), (head_dim & 3) == 0
        dim = head_dim if head < heads else int32(0)
        p, q, r, s = load4(z, int32(base + at), int32(dim - at), aligned)
        e, f, g, h = load4(o, int32(base + at), int32(dim - at), aligned)
        total = float32(float32(e * e + f * f) + float32(g * g + h * h))
        past = int32(at + 128)
        while past < dim:
            i, j, k, m = load4(o, int32(base + past), int32(dim - past), aligned)
            total = float32(total + (float32(i * i + j * j) + float32(k * k + m * m)))
            past = int32(past + 128)
        factor = inverse_rms(warp_sum(total), head_dim, eps)
        while at < dim:
            left = int32(dim - at)
            e, f, g, h = float32(e * factor * a), float32(f * factor * b), float32(g * factor * c), float32(h * factor * d)
            p, q, r, s = float32(act(p) * e), float32(act(q) * f), float32(act(r) * g), float32(act(s) * h)
            store4(z, int32(base + at), left, aligned, p, q, r, s)
            at = int32(at + 128)
            left = int32(dim - at)
            p, q, r, s = load4(z, int32(base + at), left, aligned)
            e, f, g, h = load4(o, int32(base + at), left, aligned)
            a, b, c, d = weights4(w, at, left)

    return head_rmsnorm_gated


for _name, _act in (("silu", gated.silu), ("sigmoid", gated.sigmoid)):
    kernel("FFFiif", threads=256, name=f"head_rmsnorm_{_name}")(_gated(_act))
