"""latent_append: rows of a latent cache as float16; latent_attention: attention over it (ops/latent_attention.py), the plain way.

A row of the cache has key_dim values, of which the first value_dim are values too; in a page they lie one slot behind the other.
key_dim and value_dim are even and at most MOST. layer_at: place of the layer in a page, in units of 512 bytes.

latent_append: c [rows, key_dim]; cells: 0 rows, 1 first slot. Grid: (rows).
latent_attention: q [rows, heads * key_dim], out [rows, heads * value_dim]; lists, positions, shared, branches: which slots a row
sees, as in attention_tree.py. A block takes one head of one row, tile after tile of its visible slots: a result hangs on nothing
but the row's own path. Grid: (heads, rows).
"""

from numba import cuda
from numba.types import float32, int32, int64

from . import ptx
from .attention_cache import page_of, tree_slot_at, tree_slots
from .attention_inputs import half_pair
from .exponential import exponential
from .export import kernel
from .reductions import block_sum, warp_max, warp_sum

THREADS = 256
WARPS = THREADS // 32
TILE = THREADS  # slots
MOST = 1024  # dimensions
WORDS = MOST // 2 // THREADS  # of values that a thread sums up
SUMS = 2 * WORDS
LOWEST = -3.0e38


@kernel("FILii", threads=THREADS)
def latent_append(c, cells, pages, key_dim, layer_at):
    ptx.pdl_launch()
    ptx.pdl_wait()
    row = int32(cuda.blockIdx.x)
    if row < cells[0]:
        slot = int32(cells[1] + row)
        address = page_of(pages, slot) + int64(layer_at) * 512 + int64((slot & 255) * (2 * key_dim))
        at = int32(2 * cuda.threadIdx.x)
        while at < key_dim:
            source = int32(row * key_dim + at)
            ptx.st32(address, int64(2 * at), half_pair(c[source], c[int32(source + 1)]))
            at = int32(at + 2 * THREADS)


@kernel("FFIIIIILiiiif", threads=THREADS)
def latent_attention(q, out, cells, lists, positions, shared, branches, pages, heads, key_dim, value_dim, layer_at, scale):
    query = cuda.shared.array(MOST, float32)
    weights = cuda.shared.array(TILE, float32)
    places = cuda.shared.array(TILE, int64)
    sums = cuda.shared.array(32, float32)
    tops = cuda.shared.array(WARPS, float32)
    mixed = cuda.local.array(SUMS, float32)
    ptx.pdl_launch()
    tid = int32(cuda.threadIdx.x)
    lane, warp = int32(tid & 31), int32(tid >> 5)
    head, row = int32(cuda.blockIdx.x), int32(cuda.blockIdx.y)
    rows, own, low, first, branch, at, before, middle = tree_slots(
        int32(0), int32(0), row, int32(0), cells, lists, positions, shared, branches
    )
    if row < rows:
        count = int32(first + middle + own + 1 - branch)
        d = tid
        while d < key_dim:
            query[d] = float32(q[int32((row * heads + head) * key_dim + d)] * scale)
            d = int32(d + THREADS)
        for i in range(SUMS):
            mixed[i] = float32(0)
        top, total = float32(LOWEST), float32(0)
        start = int32(0)
        while start < count:
            some = int32(min(int32(TILE), int32(count - start)))
            slot = tree_slot_at(int32(start + min(tid, int32(some - 1))), low, first, branch, lists, at, before, middle)
            places[tid] = page_of(pages, slot) + int64(layer_at) * 512 + int64((slot & 255) * (2 * key_dim))
            cuda.syncthreads()
            k = warp
            while k < some:
                score = float32(0)
                w = lane
                while 2 * w < key_dim:
                    pair = ptx.ld32(places[k], int64(4 * w))
                    score += query[int32(2 * w)] * ptx.h2f_lo(pair) + query[int32(2 * w + 1)] * ptx.h2f_hi(pair)
                    w = int32(w + 32)
                score = warp_sum(score)
                if lane == 0:
                    weights[k] = score
                k = int32(k + WARPS)
            cuda.syncthreads()
            mine = float32(LOWEST)
            if tid < some:
                mine = weights[tid]
            highest = warp_max(mine)
            if lane == 0:
                tops[warp] = highest
            cuda.syncthreads()
            highest = top
            for i in range(WARPS):
                highest = max(highest, tops[i])
            shrink = exponential(float32(top - highest))
            top = highest
            weight = float32(0)
            if tid < some:
                weight = exponential(float32(mine - top))
            weights[tid] = weight
            total = float32(total * shrink + block_sum(weight, sums))
            cuda.syncthreads()
            for i in range(WORDS):
                w = int32(tid + i * THREADS)
                even, odd = float32(mixed[2 * i] * shrink), float32(mixed[2 * i + 1] * shrink)
                if 2 * w < value_dim:
                    for k in range(some):
                        pair = ptx.ld32(places[k], int64(4 * w))
                        even += weights[k] * ptx.h2f_lo(pair)
                        odd += weights[k] * ptx.h2f_hi(pair)
                mixed[2 * i], mixed[2 * i + 1] = even, odd
            cuda.syncthreads()
            start = int32(start + TILE)
        for i in range(WORDS):
            w = int32(tid + i * THREADS)
            if 2 * w < value_dim:
                place = int32((row * heads + head) * value_dim + 2 * w)
                out[place] = float32(mixed[2 * i] / total)
                out[int32(place + 1)] = float32(mixed[2 * i + 1] / total)
