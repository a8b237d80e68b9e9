"""head_part: some columns of each head (ops/head_part.py). Grid: (ceil(heads * head_dim / 256), rows)."""

from numba import cuda
from numba.types import int32

from . import ptx
from .export import kernel


@kernel("FFiiii", threads=256)
def head_part(x, out, heads, head_dim, stride, first):
    """x: float32[rows, heads * stride], out: float32[rows, heads * head_dim]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    row, n = int32(cuda.blockIdx.y), int32(cuda.blockIdx.x * 256 + cuda.threadIdx.x)
    if n < heads * head_dim:
        head = ptx.quotient(n, head_dim)
        source = int32((row * heads + head) * stride + first + n - head * head_dim)
        out[int32(row * heads * head_dim + n)] = x[source]
