"""latent_append: rows of a latent cache as float16; latent_attention: attention over it (ops/latent_attention.py), the plain way:
of sizes and on devices that latent_attention_tile is not for.

A row of the cache has key_dim values, of which the first value_dim are values too; in a page they lie one slot behind the other.
key_dim and value_dim are even and at most MOST. layer_at: place of the layer in a page, in units of 512 bytes.

latent_append: c [rows, key_dim]; cells: 0 rows, 1 first slot. Grid: (rows).
latent_attention: q [rows, heads * key_dim], out [rows, heads * value_dim]; lists, positions, shared, branches: which slots a row
sees, as in attention_tree.py. One head of one row has up to `splits` parts of whole tiles of its visible slots, as many to each as
their number asks for; their sums are added up in order, by one block or, where the grid has `splits` blocks for them, by the last
that is done: a result hangs on nothing but the row's own path. Grid: (heads, 1 or splits, rows).
partials: of `splits` blocks value_dim + 2 floats each, for each head of each row; counters: rows * heads words, zero before the
first launch.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_cache import over, page_of, share_of, tree_slot_at, tree_slots
from .attention_inputs import half_pair
from .exponential import exponential
from .export import device, kernel
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


@device
def leave(partials, place, value_dim, mixed, top, total):
    """A part's sums of values, its largest score and its sum of weights, where `take` finds them."""
    for i in range(WORDS):
        w = int32(2 * (cuda.threadIdx.x + i * THREADS))
        if w < value_dim:
            partials[int32(place + w)] = mixed[2 * i]
            partials[int32(place + w + 1)] = mixed[2 * i + 1]
    if cuda.threadIdx.x == 0:
        partials[int32(place + value_dim)] = top
        partials[int32(place + value_dim + 1)] = total


@device
def take(partials, place, value_dim, mixed):
    for i in range(WORDS):
        w = int32(2 * (cuda.threadIdx.x + i * THREADS))
        if w < value_dim:
            mixed[2 * i] = ptx.bits2f(ptx.ldcg32(partials, int32(place + w)))
            mixed[2 * i + 1] = ptx.bits2f(ptx.ldcg32(partials, int32(place + w + 1)))
    at = int32(place + value_dim)
    return ptx.bits2f(ptx.ldcg32(partials, at)), ptx.bits2f(ptx.ldcg32(partials, int32(at + 1)))


@kernel("FFIIIIILFUiiiiif", threads=THREADS)
def latent_attention(
    q, out, cells, lists, positions, shared, branches, pages, partials, counters, splits, heads, key_dim, value_dim, layer_at, scale
):  # fmt: skip
    query = cuda.shared.array(MOST, float32)
    weights = cuda.shared.array(TILE, float32)
    places = cuda.shared.array(TILE, int64)
    sums = cuda.shared.array(32, float32)
    tops = cuda.shared.array(WARPS, float32)
    arrived = cuda.shared.array(1, int32)
    mixed, whole = cuda.local.array(SUMS, float32), cuda.local.array(SUMS, float32)  # of a part, and of those so far
    ptx.pdl_launch()
    ptx.pdl_wait()
    tid = int32(cuda.threadIdx.x)
    lane, warp = int32(tid & 31), int32(tid >> 5)
    head, row = int32(cuda.blockIdx.x), int32(cuda.blockIdx.z)
    rows, own, low, first, branch, at, before, middle = tree_slots(
        int32(0), int32(0), row, int32(0), cells, lists, positions, shared, branches
    )
    count = int32(first + middle + own + 1 - branch)
    tiles = over(int32(count + TILE - 1), int32(TILE))
    apart = int32(cuda.gridDim.y > 1)
    part = int32(cuda.blockIdx.y)
    begin, last, active, _ = share_of(tiles, int32(1), part, splits)
    if row < rows and part < active:
        end = active
        if apart:
            end = int32(part + 1)
        block = int32(row * heads + head)
        record = int32(value_dim + 2)
        d = tid
        while d < key_dim:
            query[d] = float32(q[int32(block * key_dim + d)] * scale)
            d = int32(d + THREADS)
        for i in range(SUMS):
            whole[i] = float32(0)
        peak, weight_of_all = float32(LOWEST), float32(0)
        made = int32(0)  # by other blocks: their sums are read
        while part < end:
            top, total = float32(LOWEST), float32(0)
            for i in range(SUMS):
                mixed[i] = float32(0)
            if made:
                place = int32((block * splits + part) * record)
                top, total = take(partials, place, value_dim, mixed)
            else:
                begin, last, active, _ = share_of(tiles, int32(1), part, splits)
                start, stop = int32(begin * TILE), int32(min(int32((last + 1) * TILE), count))
                while start < stop:
                    some = int32(min(int32(TILE), int32(stop - start)))
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
            if apart and made == 0 and active > 1:
                place = int32((block * splits + part) * record)
                leave(partials, place, value_dim, mixed, top, total)
                ptx.fence_gpu()
                cuda.syncthreads()
                if tid == 0:
                    arrived[0] = int32(ptx.atom_acqrel_inc(counters, block, uint32(active - 1)))
                cuda.syncthreads()
                if arrived[0] != active - 1:
                    return
                made, part, end = int32(1), int32(0), active
                continue
            highest = max(peak, top)
            old, new = exponential(float32(peak - highest)), exponential(float32(top - highest))
            peak = highest
            weight_of_all = ptx.fmaf(total, new, float32(weight_of_all * old))
            for i in range(SUMS):
                whole[i] = ptx.fmaf(mixed[i], new, float32(whole[i] * old))
            part = int32(part + 1)
        for i in range(WORDS):
            w = int32(tid + i * THREADS)
            if 2 * w < value_dim:
                place = int32(block * value_dim + 2 * w)
                out[place] = float32(whole[2 * i] / weight_of_all)
                out[int32(place + 1)] = float32(whole[2 * i + 1] / weight_of_all)
