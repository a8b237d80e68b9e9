"""Factors, in place: weigh, of every column or one for all (ops/weigh.py); route_scale, of a route's expert (ops/route_scale.py);
gate_heads, the sigmoid of one number for each head (ops/gate_heads.py)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .exponential import exponential
from .export import kernel

THREADS = 256


@kernel("FFii", threads=THREADS)
def weigh(x, w, columns, one):
    """x: float32[rows, columns], w: float32[columns], or of one number where `one` is not 0. Grid: (ceil(columns / 256), rows)."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at = int32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x)
    if at < columns:
        factor = at
        if one != 0:
            factor = int32(0)
        place = int32(cuda.blockIdx.y * columns + at)
        x[place] = float32(x[place] * ptx.ldgf(w, factor))


@kernel("FFii", threads=THREADS)
def route_scale(routes, s, used, count):
    """routes: float32[rows, 2 used], s: float32[experts]; count: rows * used. Grid: ceil(count / 256)."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    item = int32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x)
    if item < count:
        row = ptx.quotient(item, used)
        place = int32(row * used + item)
        routes[place] = float32(routes[place] * ptx.ldgf(s, int32(routes[int32(place + used)])))


@kernel("FFi", threads=THREADS)
def gate_heads(a, g, columns):
    """a: float32[rows, heads, columns], g: float32[rows, heads]. Grid: (heads, rows)."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    item = int32(cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x)
    gate = ptx.rcp(float32(float32(1) + exponential(float32(-max(g[item], float32(-80))))))
    at = int32(cuda.threadIdx.x)
    while at < columns:
        place = int32(item * columns + at)
        a[place] = float32(a[place] * gate)
        at = int32(at + THREADS)
