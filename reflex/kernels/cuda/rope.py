"""rope_angles: cos and sin of every token's angles, in float64; rope: turns each head by them, in place (ops/rope.py)."""

from numba import cuda
from numba.types import float32, float64, int32

from . import ptx
from .export import device, kernel

TWO_OVER_PI = 0.6366197723675814
HALF_PI, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17  # pi/2 to 106 bits


@device
def sine(r):
    """sin on [-pi/4, pi/4], to the last place (fdlibm __kernel_sin)."""
    z = r * r
    p = z * (
        z * (z * (z * 1.58969099521155010221e-10 - 2.50507602534068634195e-08) + 2.75573137070700676789e-06)
        - 1.98412698298579493134e-04
    )
    return r + r * z * (p + 8.33333333332248946124e-03) * z - r * z * 1.66666666666666324348e-01


@device
def cosine(r):
    """cos on [-pi/4, pi/4] (fdlibm __kernel_cos)."""
    z = r * r
    p = z * (
        z * (z * (2.08757232129817482790e-09 - z * 1.13596475577881948265e-11) - 2.75573143513906633035e-07)
        + 2.48015872894767294178e-05
    )
    return 1.0 - 0.5 * z + z * z * (p - 1.38888888888741095749e-03) * z + z * z * 4.16666666666666019037e-02


@device
def rotation(angle):
    """cos and sin of an angle below 2^31 x pi/2 in magnitude; the remainder is exact to its last place."""
    n = ptx.d2i_rn(angle * TWO_OVER_PI)
    turns = float64(-n)
    r = ptx.fmad(turns, HALF_PI_LOW, ptx.fmad(turns, HALF_PI, angle))
    s, c = sine(r), cosine(r)
    if (n & 1) != 0:
        s, c = c, s
    if (n & 2) != 0:
        s = -s
    if ((n + 1) & 2) != 0:
        c = -c
    return c, s


@kernel("DIFiif", threads=256)
def rope_angles(frequencies, positions, out, pairs, rows, magnitude):
    """frequencies: float64[pairs], positions: int32[rows], out: float32[rows, pairs, cos and sin].

    Grid: ceil(rows * pairs / 256)."""
    ptx.pdl_launch()
    i = int32(cuda.blockIdx.x * 256 + cuda.threadIdx.x)
    row = ptx.quotient(i, pairs)
    ptx.pdl_wait()
    if row < rows:
        c, s = rotation(float64(positions[row]) * frequencies[int32(i - row * pairs)])
        ptx.stf2(out, int32(i << 1), float32(c * magnitude), float32(s * magnitude))


@kernel("FFiiii", threads=256)
def rope(q, angles, heads, head_dim, pairs, neox):
    """q: float32[rows, heads * head_dim], angles: float32[rows, pairs, 2]. One warp per head. Grid: (ceil(heads / 8), rows).

    Pairs are (i, i + pairs) if `neox` is not 0, else (2i, 2i + 1); dimensions from 2 * pairs on stay."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    head, row = int32((cuda.blockIdx.x << 3) + (cuda.threadIdx.x >> 5)), int32(cuda.blockIdx.y)
    base = int32((row * heads + head) * head_dim)
    i = int32(cuda.threadIdx.x & 31)
    while i < pairs and head < heads:
        first, second = int32(base + 2 * i), int32(base + 2 * i + 1)
        if neox != 0:
            first, second = int32(base + i), int32(base + i + pairs)
        at = int32((row * pairs + i) << 1)
        c, s = angles[at], angles[int32(at + 1)]
        a, b = q[first], q[second]
        q[first] = float32(a * c - b * s)
        q[second] = float32(a * s + b * c)
        i = int32(i + 32)
