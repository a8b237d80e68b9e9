"""Rotary position embedding (ops/rope.py): angles in float64, rotation in float32.

Pairs of a head are (2i, 2i+1) in style norm and (i, i + pairs) in style neox; dimensions past the pairs stay.
"""

from ..export import export, helper
from ..intrinsics import load_f32, load_f64, load_i64, store_f32

TWO_OVER_PI = 0.6366197723675814
# pi/2 in three parts whose products with a small integer are exact (fdlibm __ieee754_rem_pio2)
HALF_PI_1, HALF_PI_2, HALF_PI_3 = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21


@helper
def sine(r):
    """sin on [-pi/4, pi/4], to the last place (fdlibm __kernel_sin)."""
    z = r * r
    p = z * (
        z * (z * (z * 1.58969099521155010221e-10 - 2.50507602534068634195e-08) + 2.75573137070700676789e-06)
        - 1.98412698298579493134e-04
    )
    return r + r * z * (p + 8.33333333332248946124e-03) * z - r * z * 1.66666666666666324348e-01


@helper
def cosine(r):
    """cos on [-pi/4, pi/4] (fdlibm __kernel_cos)."""
    z = r * r
    p = z * (
        z * (z * (2.08757232129817482790e-09 - z * 1.13596475577881948265e-11) - 2.75573143513906633035e-07)
        + 2.48015872894767294178e-05
    )
    return 1.0 - 0.5 * z + z * z * (p - 1.38888888888741095749e-03) * z + z * z * 4.16666666666666019037e-02


@helper
def rotation(angle, magnitude, cos_at, sin_at):
    """Store magnitude x cos and sin of a non-negative angle below 2^31 x pi/2."""
    n = int(angle * TWO_OVER_PI + 0.5)
    r = ((angle - n * HALF_PI_1) - n * HALF_PI_2) - n * HALF_PI_3
    s, c = sine(r), cosine(r)
    quadrant = n & 3
    if quadrant == 1:
        s, c = c, -s
    elif quadrant == 2:
        s, c = -s, -c
    elif quadrant == 3:
        s, c = -c, s
    store_f32(cos_at, magnitude * c)
    store_f32(sin_at, magnitude * s)
    return 0


# step: 0 output, 1 frequencies (float64), 2 pairs, 3 address of the row count, 4 positions (int64),
# 5 address of the magnitude (float64)


@export
def rope_angles(step, thread, threads):
    """Rows of cos[pairs], sin[pairs] for every token of the batch."""
    rows, pairs = load_i64(load_i64(step + 24)), load_i64(step + 16)
    magnitude = load_f64(load_i64(step + 40))
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        position = load_i64(load_i64(step + 32) + 8 * row)
        at = load_i64(step) + 8 * pairs * row
        for i in range(pairs):
            rotation(position * load_f64(load_i64(step + 8) + 8 * i), magnitude, at + 4 * i, at + 4 * (pairs + i))
    return 0


@helper
def rotate(head, table, pairs, first, apart):
    for i in range(pairs):
        c, s = load_f32(table + 4 * i), load_f32(table + 4 * (pairs + i))
        at = head + first * i
        a, b = load_f32(at), load_f32(at + apart)
        store_f32(at, a * c - b * s)
        store_f32(at + apart, a * s + b * c)
    return 0


# step: 0 buffer, 1 angle rows, 2 pairs, 3 heads, 4 head dimension, 5 address of the row count, 6 bytes per row,
# 7 token index per row (int64), 8 neox


@export(fast=True)
def rope(step, thread, threads):
    """In place; each thread takes every threads-th (row, head)."""
    pairs, heads, dim = load_i64(step + 16), load_i64(step + 24), load_i64(step + 32)
    items = load_i64(load_i64(step + 40)) * heads
    first, apart = 8, 4
    if load_i64(step + 64) != 0:
        first, apart = 4, 4 * pairs
    for k in range((items - thread + threads - 1) // threads):
        item = thread + k * threads
        row = item // heads
        token = load_i64(load_i64(step + 56) + 8 * row)
        head = load_i64(step) + row * load_i64(step + 48) + 4 * dim * (item - row * heads)
        rotate(head, load_i64(step + 8) + 8 * pairs * token, pairs, first, apart)
    return 0
