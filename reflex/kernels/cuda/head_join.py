"""head_join: y_h = (t_h | x_h[used:]), what a matrix made of a head and the dimensions that it did not read (ops/head_linear.py).

t [rows, heads * made], x [rows, heads * head_dim], y [rows, heads * (made + head_dim - used)]. Grid: (heads, rows).
"""

from numba import cuda
from numba.types import int32

from . import ptx
from .export import kernel

THREADS = 128


@kernel("FFFiiii", threads=THREADS)
def head_join(t, x, y, heads, made, head_dim, used):
    ptx.pdl_launch()
    ptx.pdl_wait()
    item = int32(cuda.blockIdx.y * heads + cuda.blockIdx.x)
    width = int32(made + head_dim - used)
    at = int32(cuda.threadIdx.x)
    while at < width:
        if at < made:
            y[int32(item * width + at)] = t[int32(item * made + at)]
        else:
            y[int32(item * width + at)] = x[int32(item * head_dim + used + at - made)]
        at = int32(at + THREADS)
