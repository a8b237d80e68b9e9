"""router_row, router_rows: the logits of a router, out[row, e] = w_e . h_row + bias_e, with weights in float32: which experts
are chosen hangs on small differences, so nothing is rounded.

x: float32[rows, columns], columns a multiple of 4; when `normed`, h is x times norm[columns] over its root mean square (eps),
else x.

router_row: one row of x, a block per expert; grid: (experts). Its weights are read before it waits. router_rows: any number of
rows, each with the same result in any company; a warp has 4 experts and 8 rows. Grid: (ceil(experts / 16), ceil(rows / 8)).
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import device, kernel

THREADS, WARPS = 256, 8
AHEAD = 2  # loads of a thread on the way before it waits
VALUES, PARTS = 4 * AHEAD, 2 * WARPS
ROWS_THREADS = 128
EXPERTS, TOKENS = 4, 8  # of a warp of router_rows
SUMS, WEIGHTS = EXPERTS * TOKENS, 4 * EXPERTS


@device
def four(x, at, wanted):
    a, b, c, d = ptx.ldg128_if(x, at, wanted)
    return ptx.bits2f(a), ptx.bits2f(b), ptx.bits2f(c), ptx.bits2f(d)


@kernel("FFifiFFiF", threads=THREADS, blocks=4)
def router_row(x, norm, normed, eps, columns, w, bias, biased, out):
    ptx.pdl_launch()
    parts = cuda.shared.array(PARTS, float32)
    a, b, v = cuda.local.array(VALUES, float32), cuda.local.array(VALUES, float32), cuda.local.array(VALUES, float32)
    tid, expert = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
    row = ptx.address(w, int64(expert) * columns)
    base, dot, squares = int32(0), float32(0), float32(0)
    while base < columns:
        for k in range(AHEAD):
            i = int32(base + 4 * (tid + THREADS * k))
            wanted = uint32(1 if i < columns else 0)
            a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3] = four(row, int32(4 * min(i, int32(columns - 4))), wanted)
            wanted = uint32(wanted & uint32(normed))
            b[4 * k], b[4 * k + 1], b[4 * k + 2], b[4 * k + 3] = four(norm, min(i, int32(columns - 4)), wanted)
        if base == 0:
            ptx.pdl_wait()
        for k in range(AHEAD):
            i = int32(base + 4 * (tid + THREADS * k))
            wanted = uint32(1 if i < columns else 0)
            v[4 * k], v[4 * k + 1], v[4 * k + 2], v[4 * k + 3] = ptx.ldf4_if(x, min(i, int32(columns - 4)), wanted)
        for k in range(AHEAD):
            if base + 4 * (tid + THREADS * k) < columns:
                for j in range(4 * k, 4 * k + 4):
                    squares = ptx.fmaf(v[j], v[j], squares)
                    if normed:
                        v[j] = float32(v[j] * b[j])
                    dot = ptx.fmaf(v[j], a[j], dot)
        base = int32(base + 4 * THREADS * AHEAD)
    for k in range(5):
        dot += ptx.shfl_xor(dot, int32(16 >> k))
        squares += ptx.shfl_xor(squares, int32(16 >> k))
    if tid & 31 == 0:
        parts[uint32(tid >> 5)] = dot
        parts[uint32(WARPS + (tid >> 5))] = squares
    cuda.syncthreads()
    if tid == 0:
        dot, squares = float32(0), float32(0)
        for k in range(WARPS):
            dot += parts[uint32(k)]
            squares += parts[uint32(WARPS + k)]
        if normed:
            dot *= ptx.rsqrt(squares / float32(columns) + eps)
        if biased:
            dot += ptx.ldgf(bias, expert)
        out[expert] = dot


@device
def folded(low, high, lane, bit):
    """Lanes without `bit` get the sum of `low` over themselves and their partner, the others that of `high`."""
    mine, other = low, high
    if lane & bit:
        mine, other = high, low
    return float32(mine + ptx.shfl_xor(other, bit))


@kernel("FFifiFFiFii", threads=ROWS_THREADS)
def router_rows(x, norm, normed, eps, columns, w, bias, biased, out, experts, rows):
    ptx.pdl_launch()
    ptx.pdl_wait()
    sums, squares = cuda.local.array(SUMS, float32), cuda.local.array(TOKENS, float32)
    lane = int32(cuda.threadIdx.x & 31)
    first_expert = int32(EXPERTS * (cuda.blockIdx.x * (ROWS_THREADS // 32) + (cuda.threadIdx.x >> 5)))
    first_row = int32(TOKENS * cuda.blockIdx.y)
    for k in range(SUMS):
        sums[k] = float32(0)
    for t in range(TOKENS):
        squares[t] = float32(0)
    i = int32(4 * lane)
    while i < columns:
        n0, n1, n2, n3 = float32(1), float32(1), float32(1), float32(1)
        if normed:
            n0, n1, n2, n3 = ptx.ldgf4(norm, i)
        weights = cuda.local.array(WEIGHTS, float32)
        for e in range(EXPERTS):
            at = int64(min(int32(first_expert + e), int32(experts - 1))) * columns + i
            weights[4 * e], weights[4 * e + 1], weights[4 * e + 2], weights[4 * e + 3] = ptx.ldgf4(w, at)
        for t in range(TOKENS):
            v0, v1, v2, v3 = ptx.ldf4(x, int64(min(int32(first_row + t), int32(rows - 1))) * columns + i)
            squares[t] = ptx.fmaf(v0, v0, ptx.fmaf(v1, v1, ptx.fmaf(v2, v2, ptx.fmaf(v3, v3, squares[t]))))
            v0, v1, v2, v3 = float32(v0 * n0), float32(v1 * n1), float32(v2 * n2), float32(v3 * n3)
            for e in range(EXPERTS):
                k = TOKENS * e + t
                low = ptx.fmaf(v0, weights[4 * e], ptx.fmaf(v1, weights[4 * e + 1], sums[k]))
                sums[k] = ptx.fmaf(v2, weights[4 * e + 2], ptx.fmaf(v3, weights[4 * e + 3], low))
        i = int32(i + 128)
    for k in range(16):  # lane n ends with sum n
        sums[k] = folded(sums[k], sums[k + 16], lane, int32(16))
    for k in range(8):
        sums[k] = folded(sums[k], sums[k + 8], lane, int32(8))
    for k in range(4):
        sums[k] = folded(sums[k], sums[k + 4], lane, int32(4))
    for k in range(2):
        sums[k] = folded(sums[k], sums[k + 2], lane, int32(2))
    sums[0] = folded(sums[0], sums[1], lane, int32(1))
    for t in range(TOKENS):
        for step in range(5):
            squares[t] += ptx.shfl_xor(squares[t], int32(16 >> step))
    mine = squares[0]
    for t in range(1, TOKENS):
        if lane & (TOKENS - 1) == t:
            mine = squares[t]
    expert, row = int32(first_expert + lane // TOKENS), int32(first_row + (lane & (TOKENS - 1)))
    if expert < experts and row < rows:
        dot = sums[0]
        if normed:
            dot *= ptx.rsqrt(mine / float32(columns) + eps)
        if biased:
            dot += ptx.ldgf(bias, expert)
        out[int64(row) * experts + expert] = dot
