"""head_transposed: y_h = (x_h[:used] W_h | x_h[used:]), a matrix for every head that is stored the other way round, as float32
(ops/head_linear.py).

x [rows, heads * head_dim], w [heads, stride], of which the first used * columns are W_h, y [rows, heads * (columns + head_dim -
used)]. A block takes TOKENS rows of one head. Grid: (ceil((columns + head_dim - used) / THREADS), heads, ceil(rows / TOKENS)).
"""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import kernel

THREADS = 128
TOKENS = 4
AT_ONCE = 4  # weights on their way


@kernel("FFFiiiiii", threads=THREADS)
def head_transposed(x, w, y, rows, heads, head_dim, used, columns, stride):
    ptx.pdl_launch()
    ptx.pdl_wait()
    sums, places = cuda.local.array(TOKENS, float32), cuda.local.array(TOKENS, int32)
    weights = cuda.local.array(AT_ONCE, float32)
    at, head = int32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x), int32(cuda.blockIdx.y)
    first, width = int32(cuda.blockIdx.z * TOKENS), int32(columns + head_dim - used)
    for k in range(TOKENS):
        sums[k] = float32(0)
        places[k] = int32((min(int32(first + k), int32(rows - 1)) * heads + head) * head_dim)
    if at < columns:
        start, i = int32(head * stride + at), int32(0)
        while i < used:
            for j in range(AT_ONCE):
                weights[j] = w[int32(start + min(int32(i + j), int32(used - 1)) * columns)]
            for j in range(AT_ONCE):
                if i + j < used:
                    for k in range(TOKENS):
                        sums[k] = ptx.fmaf(x[int32(places[k] + i + j)], weights[j], sums[k])
            i = int32(i + AT_ONCE)
    elif at < width:
        for k in range(TOKENS):
            sums[k] = x[int32(places[k] + used + at - columns)]
    if at < width:
        for k in range(TOKENS):
            if first + k < rows:
                y[int32(((first + k) * heads + head) * width + at)] = sums[k]
