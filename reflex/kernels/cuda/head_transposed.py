"""head_transposed, head_transposed_many: y_h = (x_h[:used] W_h | x_h[used:]), a matrix for every head that is stored the other way
round, as float32 (ops/head_linear.py).

x [rows, heads * head_dim], w [heads, stride], of which the first used * columns are W_h, y [rows, heads * (columns + head_dim -
used)]. A block takes TOKENS rows of one head, a column to a thread; of many rows MANY, and WIDE columns, by way of shared memory.
Both add up in the same order. Grids: (ceil((columns + head_dim - used) / THREADS), heads, ceil(rows / TOKENS)); of many rows WIDE
and MANY in place of THREADS and TOKENS.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device, kernel

THREADS = 128
TOKENS = 4
AT_ONCE = 16  # weights on their way
MANY, WIDE, MANY_THREADS = 64, 128, 256
EACH, APART = MANY // 8, WIDE // 32  # rows of a warp; columns of a lane, 32 from each other
DEPTH = 32  # rows of a matrix in shared memory
LINE = DEPTH + 4  # words of the inputs of a row there
INPUTS, WEIGHTS = MANY * LINE, DEPTH * WIDE
ROW_LOADS, WEIGHT_LOADS = MANY // 8, DEPTH // 2
LOADS = ROW_LOADS + WEIGHT_LOADS
SUMS, NEAR = EACH * APART, 4 * APART


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


@device
def ask(x, w, asked, row, lane, tid, rows, heads, head, head_dim, used, columns, start, first_column, i):
    """A lane's share of what the next DEPTH rows of the matrix need: values of inputs, zeros beyond them, then weights."""
    if i < used:
        here = int32(min(int32(i + lane), int32(used - 1)))
        for k in range(ROW_LOADS):
            at = int32(min(int32(row + 8 * k), int32(rows - 1)))
            asked[k] = x[int32((at * heads + head) * head_dim + here)]
        column = int32(min(int32(first_column + (tid & 127)), int32(columns - 1)))
        for k in range(WEIGHT_LOADS):
            line = int32(min(int32(i + 2 * k + (tid >> 7)), int32(used - 1)))
            asked[ROW_LOADS + k] = w[int32(start + line * columns + column)]
        for k in range(ROW_LOADS):
            if i + lane >= used:
                asked[k] = float32(0)


@kernel("FFFiiiiii", threads=MANY_THREADS)
def head_transposed_many(x, w, y, rows, heads, head_dim, used, columns, stride):
    ptx.pdl_launch()
    ptx.pdl_wait()
    inputs, weights = cuda.shared.array(INPUTS, float32, alignment=16), cuda.shared.array(WEIGHTS, float32, alignment=16)
    asked, sums = cuda.local.array(LOADS, float32), cuda.local.array(SUMS, float32)
    here = cuda.local.array(NEAR, float32)
    tid = int32(cuda.threadIdx.x)
    lane, warp, head = int32(tid & 31), int32(tid >> 5), int32(cuda.blockIdx.y)
    first, first_column = int32(cuda.blockIdx.z * MANY), int32(cuda.blockIdx.x * WIDE)
    width = int32(columns + head_dim - used)
    for k in range(SUMS):
        sums[k] = float32(0)
    i, start = int32(0), int32(head * stride)
    if first_column >= columns:
        i = used
    ask(x, w, asked, int32(first + warp), lane, tid, rows, heads, head, head_dim, used, columns, start, first_column, i)
    while i < used:
        cuda.syncthreads()
        for k in range(ROW_LOADS):
            inputs[uint32((warp + 8 * k) * LINE + lane)] = asked[k]
        for k in range(WEIGHT_LOADS):
            weights[uint32((2 * k + (tid >> 7)) * WIDE + (tid & 127))] = asked[ROW_LOADS + k]
        cuda.syncthreads()
        i = int32(i + DEPTH)
        ask(x, w, asked, int32(first + warp), lane, tid, rows, heads, head, head_dim, used, columns, start, first_column, i)
        line = int32(0)
        while line < DEPTH:
            for j in range(4):
                for n in range(APART):
                    here[APART * j + n] = weights[uint32((line + j) * WIDE + lane + 32 * n)]
            for k in range(EACH):
                a, b, c, d = ptx.ldsf4(inputs, int32((EACH * warp + k) * LINE + line))
                for n in range(APART):
                    total = ptx.fmaf(b, here[APART + n], ptx.fmaf(a, here[n], sums[APART * k + n]))
                    sums[APART * k + n] = ptx.fmaf(d, here[3 * APART + n], ptx.fmaf(c, here[2 * APART + n], total))
            line = int32(line + 4)
    for k in range(EACH):
        row = int32(first + EACH * warp + k)
        for n in range(APART):
            at = int32(first_column + lane + 32 * n)
            if row < rows and at < width:
                value = sums[APART * k + n]
                if at >= columns:
                    value = x[int32((row * heads + head) * head_dim + used + at - columns)]
                y[int32((row * heads + head) * width + at)] = value
