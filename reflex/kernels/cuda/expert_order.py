"""expert_order: the (row, expert) pairs of a batch gathered by expert, and cut into tiles of up to `tokens` pairs of one
expert.

routes: float32[rows, 2 used] (route.py); pairs of a negative expert are left out. order: int32[rows * used] becomes the pairs
row * used + slot, those of expert 0 first, always in the same order. tiles: int32[most tiles, 4] becomes {expert, first place in
order, pairs, 0}, with 0 pairs in those that are not needed; at most (pairs + (tokens - 1) * min(experts, pairs)) / tokens are.
experts: up to 512. One block; dynamic shared memory: 4 bytes a pair.

`tile_of` is how kernels read a tile.
"""

from numba import cuda
from numba.types import int32, int64, uint32

from . import ptx
from .export import device, kernel
from .reductions import block_scan

THREADS = 1024
LEAST = 32  # columns of the table of counts


@device
def tile_of(tiles, index):
    """(expert, first place in order, pairs) of a tile."""
    expert, first, count, _ = ptx.ld128(tiles, int32(4 * index))
    return int32(expert), int32(first), int32(count)


@kernel("FiiiiIIi", threads=THREADS)
def expert_order(routes, rows, experts, used, tokens, order, tiles, most):
    ptx.pdl_launch()
    ptx.pdl_wait()
    ids = cuda.shared.array(0, int32, alignment=128)
    starts = cuda.shared.array(THREADS, int32)
    cells = cuda.shared.array(32, int64)
    tid, pairs = int32(cuda.threadIdx.x), int32(rows * used)
    pair = tid
    while pair < pairs:
        row = ptx.quotient(pair, used)
        ids[uint32(pair)] = int32(routes[int32(row * used + pair + used)])
        pair = int32(pair + THREADS)
    log_shares = int32(10)  # threads that share an expert, each with every so manieth pair
    columns = int32(1)
    while columns < experts or columns < LEAST:
        columns = int32(columns * 2)
        log_shares = int32(log_shares - 1)
    shares = int32(1 << log_shares)
    expert, share = int32(tid >> log_shares), int32(tid & (shares - 1))
    cuda.syncthreads()
    count = int32(0)
    pair = share
    while pair < pairs:
        if ids[uint32(pair)] == expert:
            count = int32(count + 1)
        pair = int32(pair + shares)
    end, listed = block_scan(int64(count), cells)
    place = int32(int32(end) - count)
    starts[uint32(tid)] = place
    pair = share
    while count > 0:
        if ids[uint32(pair)] == expert:
            order[place] = pair
            place, count = int32(place + 1), int32(count - 1)
        pair = int32(pair + shares)
    cuda.syncthreads()
    first, own = int32(0), int32(0)  # of thread e: where expert e's pairs begin, and their number
    if tid < columns:
        first, own = starts[uint32(tid << log_shares)], int32(listed)
        if tid + 1 < columns:
            own = starts[uint32((tid + 1) << log_shares)]
        own = int32(own - first)
    mine = ptx.quotient(int32(own + tokens - 1), tokens)
    end, total = block_scan(int64(mine), cells)
    place = int32(int32(end) - mine)
    while own > 0:
        ptx.st128(tiles, int32(4 * place), uint32(tid), uint32(first), uint32(min(own, tokens)), uint32(0))
        first, own, place = int32(first + tokens), int32(own - tokens), int32(place + 1)
    place = int32(int32(total) + tid)
    while place < most:
        ptx.st128(tiles, int32(4 * place), uint32(0), uint32(0), uint32(0), uint32(0))
        place = int32(place + THREADS)
