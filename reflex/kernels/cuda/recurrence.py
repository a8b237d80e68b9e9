"""recurrence: a matrix of state per head over the strands of a batch: delta rules and scans (ops/delta_rule.py, ops/state_scan.py).

Grid: (ceil(columns / 32), heads). A block keeps 32 columns of a head's matrix in shared memory while the tokens pass, one after
another; a warp has every eighth row, a lane one column, so that only sums over rows cross warps, always in the same order.
Dynamic shared memory: 4 (32 rows + 256) bytes. places, strands, offset: as of conv.
"""

from numba import cuda
from numba.types import float32, int32, int64

from . import ptx
from .conv import place_of
from .exponential import exponential
from .export import device, kernel

THREADS, WARPS, WIDTH = 256, 8, 32
GROUPED, CHANNELS, SCAN = 1, 2, 4  # flags


@device
def over_warps(sh, cells, lane, warp, value):
    """Sum of what the warps have for a column."""
    sh[int32(cells + WIDTH * warp + lane)] = value
    cuda.syncthreads()
    total = float32(0)
    for i in range(WARPS):
        total = float32(total + sh[int32(cells + WIDTH * i + lane)])
    cuda.syncthreads()
    return total


@kernel("FFFFFFFFLIiiiiiif", threads=THREADS)
def recurrence(q, k, v, dt, beta, out, a, d, places, strands, offset, heads, key_heads, rows, columns, flags, scale):
    """q, k: float32[tokens, key_heads * rows]; v, out: float32[tokens, heads * columns]; dt: float32[tokens, heads], with CHANNELS
    [tokens, heads * rows]; beta: [tokens, heads], read without SCAN; a, d: float32[heads], the latter read with SCAN."""
    sh = cuda.shared.array(0, float32, alignment=16)
    ptx.pdl_launch()
    ptx.pdl_wait()
    lane, warp = int32(cuda.threadIdx.x & 31), int32(cuda.threadIdx.x >> 5)
    head, column = int32(cuda.blockIdx.y), int32(cuda.blockIdx.x * WIDTH + lane)
    cells, live = int32(WIDTH * rows), column < columns
    source = int32(head - key_heads * ptx.quotient(head, key_heads))
    if flags & GROUPED != 0:
        source = ptx.quotient(head, ptx.quotient(heads, key_heads))
    rate = a[head]
    own = int32(4 * (head * rows * columns + column))  # of column 0 of the head's matrix, bytes
    strand, end = int32(1), int32(1 + 4 * strands[0])
    while strand < end:
        token = int32(strands[strand])
        last = int32(token + strands[int32(strand + 1)])
        before = place_of(places, int32(strands[int32(strand + 2)]), offset)
        after = place_of(places, int32(strands[int32(strand + 3)]), offset)
        i = warp
        while i < rows:
            value = float32(0)
            if live and before != 0:
                value = ptx.ldf(before, int64(int32(own + 4 * i * columns)))
            sh[int32(WIDTH * i + lane)] = value
            i = ptx.opaque(int32(i + WARPS))
        while token < last:
            item = int32(token * heads + head)
            at = int32((token * key_heads + source) * rows)
            gate, value, new = float32(0), float32(0), float32(0)
            if flags & CHANNELS == 0:
                gate = exponential(float32(rate * dt[item]))
            if live:
                value = v[int32(item * columns + column)]
            if flags & SCAN != 0:
                new = float32(dt[item] * value)
            else:
                read = float32(0)
                i = warp
                while i < rows:
                    if flags & CHANNELS != 0:
                        gate = exponential(float32(rate * dt[int32(item * rows + i)]))
                    s = float32(gate * sh[int32(WIDTH * i + lane)])
                    sh[int32(WIDTH * i + lane)] = s
                    read = ptx.fmaf(k[int32(at + i)], s, read)
                    i = int32(i + WARPS)
                new = float32(beta[item] * float32(value - over_warps(sh, cells, lane, warp, read)))
                gate = float32(1)
            found = float32(0)
            i = warp
            while i < rows:
                s = ptx.fmaf(k[int32(at + i)], new, float32(gate * sh[int32(WIDTH * i + lane)]))
                sh[int32(WIDTH * i + lane)] = s
                found = ptx.fmaf(q[int32(at + i)], s, found)
                i = int32(i + WARPS)
            found = float32(scale * over_warps(sh, cells, lane, warp, found))
            if flags & SCAN != 0:
                found = ptx.fmaf(d[head], value, found)
            if live and warp == 0:
                out[int32(item * columns + column)] = found
            token = int32(token + 1)
        i = warp
        while i < rows and after != 0:
            if live:
                ptx.stf(after, int64(int32(own + 4 * i * columns)), sh[int32(WIDTH * i + lane)])
            i = ptx.opaque(int32(i + WARPS))
        strand = int32(strand + 4)
