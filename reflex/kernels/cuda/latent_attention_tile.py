"""latent_attention_tile: latent attention (ops/latent_attention.py) of many rows over the float16 cache, on tensor cores.

    latent_attention_tile_<key_dim>_<value_dim>: 576 and 512, 320 and 256. 256 threads.
    grid (ceil(rows / tokens), ceil(heads / together), splits <= 32)
    dynamic shared memory, in bytes: 384 key_dim + 8192, which is why devices with less than 227 KB do not have it

One key serves all heads, so a block takes up to 64 queries, `together` heads of each of `tokens` tokens, that read a tile of 64
slots from shared memory together. together * tokens <= 64; tokens > 1 only where `together` is all heads. The next tile comes while
one is used. Two times four warps: 32 queries by a quarter of the slots, then of the columns of the values. q (scaled) and the
weights are rounded to float16, sums are float32. Chunks of 16 bytes lie in shared memory at their number, its low bits changed by
those of the row, so that eight rows are in different banks.

Tiles are cut along the slots, or with flag APART along the slots that the one token sees, in the order of their positions: for a
row that continues the timeline itself both are the same, and so are its bits, whoever is beside it.

q [rows, heads * key_dim], out [rows, heads * value_dim]; layer_at in units of 512 bytes; lists as in attention_tree.py.
With splits, of as many tiles each, tokens is 1, out [splits, rows, heads * value_dim] gets sums and facts [splits, rows, heads, 2]
scale and sum of their weights, the latter 0 where a split has no tile; latent_attention_join, grid (heads, rows), makes results.
flags: 16 (PARTED) only the first cells[4] rows; 1 (APART, tokens = 1) only the rows behind these, whose slots lie in several runs.
Every slot of the batch is in the cache.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_cache import PARTED, PLAIN, page_of, share_of, tree_slot_at, tree_slots
from .attention_inputs import half_pair
from .attention_join import HIDDEN
from .attention_row import unit_of
from .attention_tile import FLOOR, NOWHERE, least_of, most_of, sum_of_row, tiles_of
from .export import device, kernel

THREADS = 256
QUERIES, SLOTS = 64, 64  # of a block, of a tile
ACROSS = 4  # warps of the same 32 queries
PARTS = ACROSS * QUERIES
ROWS = 4  # queries that a lane has sums of
WEIGHTS = SLOTS // 2  # words of the weights of a query
AT_ONCE = 4  # products of 16 dimensions that follow each other without a jump; the swizzle repeats after as many
APART = 1  # flag
JOINERS, JOINED = 64, 32  # threads of a block that joins splits; numbers of a lane on their way
SIZES = (576, 512), (320, 256)


@device
def put_bounds(lows, stops, begins, owns, first_row, rows, together, live, cells, shared, branches, tid):
    """What each query of the block sees: slots [low, stop) and [begin, own]."""
    if tid < QUERIES:
        token = int32(first_row + ptx.quotient(int32(min(tid, int32(live - 1))), together))
        begin = int32(branches[token])
        stop = int32(min(int32(shared[token]), begin))
        low = int32(0)
        if stop == 0:
            low = int32(NOWHERE)
        lows[uint32(tid)] = low
        stops[uint32(tid)] = stop
        begins[uint32(tid)] = begin
        owns[uint32(tid)] = int32(cells[1] + token)


@device
def put_count(lows, stops, begins, owns, count, tid):
    """The same of one token's `count` slots, by their numbers in its own order."""
    if tid < QUERIES:
        lows[uint32(tid)] = int32(NOWHERE)
        stops[uint32(tid)] = int32(0)
        begins[uint32(tid)] = int32(0)
        owns[uint32(tid)] = int32(count - 1)


@device
def slot_of(tile, tile_a, tiles_a, tile_b):
    """The first slot of a tile, of those that any query sees."""
    at = int32(tile_a + tile)
    if tile >= tiles_a:
        at = int32(tile_b + tile - tiles_a)
    return int32(at * SLOTS)


@device
def hide(s, row, slot, low, stop, begin, own):
    """Takes the slots that a query does not see out of its scores. slot: of the lane's first column."""
    for n in range(2):
        for e in range(2):
            at = int32(slot + 8 * n + e)
            if not ((at >= low and at < stop) or (at >= begin and at <= own)):
                s[8 * (row >> 1) + 4 * n + 2 * (row & 1) + e] = float32(HIDDEN)


@device
def higher(peak, top):
    """(the larger scale, factors of sums by the one and by the other)."""
    highest = max(peak, top)
    return highest, float32(ptx.ex2(float32(peak - highest))), float32(ptx.ex2(float32(top - highest)))


@device
def put_tops(parts, s, row0, across, lane):
    """The largest of the warp's scores of every query."""
    for i in range(ROWS):
        o = 8 * (i >> 1) + 2 * (i & 1)
        top = max(max(s[o], s[o + 1]), max(s[o + 4], s[o + 5]))
        top = max(top, ptx.shfl_xor(top, 1))
        top = max(top, ptx.shfl_xor(top, 2))
        if lane & 3 == 0:
            parts[uint32(QUERIES * across + row0 + 8 * i)] = top


@device
def put_weights(sh, weights, s, row, r, top, across, lane):
    """Scores of one query to weights exp2(score - top); returns the lane's sum."""
    total, o = float32(0), 8 * (row >> 1) + 2 * (row & 1)
    for n in range(2):
        a, b = ptx.ex2(s[o + 4 * n] - top), ptx.ex2(s[o + 4 * n + 1] - top)
        total += a + b
        chunk = int32((2 * across + n) ^ (r & 7))
        ptx.sts32(sh, int32(weights + r * WEIGHTS + 4 * chunk + (lane & 3)), ptx.f2h2(a, b))
    return total


def make_parts(key_dim, value_dim):
    """(bring, put_queries, scores, weigh, leave)."""
    pitch, parts = key_dim // 2, key_dim // 8
    passes = QUERIES * parts // THREADS
    batch = next(n for n in (6, 5) if passes % n == 0)  # chunks of a lane on their way
    loaded = 8 * batch
    depth, wide = key_dim // 16, value_dim // ACROSS // 16

    @device
    def bring(sh, to, place, index, end, tid):
        """A quarter of one slot's row on its way to shared memory, zeros from slot `end` on."""
        row = int32(tid >> 2)
        size = uint32(16)
        if index >= end:
            size = uint32(0)
        for i in range(parts // 4):
            part = int32((tid & 3) + 4 * i)
            ptx.cp_async16z(sh, int32(to + row * pitch + 4 * (part ^ (row & 7))), place, int64(16 * part), size)

    @device
    def put_queries(sh, q, first, live, unit, tid):
        values, start = cuda.local.array(loaded, float32), tid
        while start < QUERIES * parts:
            for i in range(batch):
                row = int32(uint32(start + THREADS * i) // uint32(parts))
                part = int32(start + THREADS * i - row * parts)
                source, o = int32((first + min(row, int32(live - 1))) * key_dim + 8 * part), 8 * i
                values[o], values[o + 1], values[o + 2], values[o + 3] = ptx.ldf4(q, source)
                values[o + 4], values[o + 5], values[o + 6], values[o + 7] = ptx.ldf4(q, int32(source + 4))
            for i in range(batch):
                row = int32(uint32(start + THREADS * i) // uint32(parts))
                part, o = int32(start + THREADS * i - row * parts), 8 * i
                ptx.sts128(
                    sh, int32(row * pitch + 4 * (part ^ (row & 7))),
                    half_pair(values[o] * unit, values[o + 1] * unit), half_pair(values[o + 2] * unit, values[o + 3] * unit),
                    half_pair(values[o + 4] * unit, values[o + 5] * unit), half_pair(values[o + 6] * unit, values[o + 7] * unit),
                )  # fmt: skip
            start = int32(start + THREADS * batch)

    @device
    def scores(sh, keys, s, half, across, lane):
        """s = 32 queries times 16 slots."""
        for n in range(16):
            s[n] = float32(0)
        query = int32((32 * half + (lane & 15)) * pitch)
        key = int32(keys + (16 * across + (lane & 7) + ((lane >> 4) << 3)) * pitch)
        turn, key_turn = int32((lane >> 4) ^ (lane & 7)), int32(((lane >> 3) & 1) ^ (lane & 7))
        left = int32(depth // AT_ONCE)
        while left > 0:
            for k in range(AT_ONCE):
                b0, b1, b2, b3 = ptx.ldmatrix_x4(sh, int32(key + 4 * ((2 * k) ^ key_turn)))
                for m in range(2):
                    a0, a1, a2, a3 = ptx.ldmatrix_x4(sh, int32(query + 16 * pitch * m + 4 * ((2 * k) ^ turn)))
                    o = 8 * m
                    s[o], s[o + 1], s[o + 2], s[o + 3] = ptx.mma_f16(
                        a0, a1, a2, a3, b0, b1, s[o], s[o + 1], s[o + 2], s[o + 3]
                    )
                    s[o + 4], s[o + 5], s[o + 6], s[o + 7] = ptx.mma_f16(
                        a0, a1, a2, a3, b2, b3, s[o + 4], s[o + 5], s[o + 6], s[o + 7]
                    )
            key, query = int32(key + 8 * AT_ONCE), int32(query + 8 * AT_ONCE)
            left = ptx.shfl_idx_i(int32(left - 1), int32(0))  # no compiler knows how often, and unrolls it

    @device
    def weigh(sh, weights, keys, acc, half, across, lane):
        """acc += weights of 32 queries times a quarter of the columns of the values."""
        query = int32(weights + (32 * half + (lane & 15)) * WEIGHTS)
        value = int32(keys + (lane & 15) * pitch)
        first, turn = int32(2 * wide * across), int32((lane >> 4) ^ (lane & 7))
        k = int32(0)
        while k < SLOTS // 16:
            a0, a1, a2, a3 = ptx.ldmatrix_x4(sh, int32(query + 4 * ((2 * k) ^ turn)))
            c0, c1, c2, c3 = ptx.ldmatrix_x4(sh, int32(query + 16 * WEIGHTS + 4 * ((2 * k) ^ turn)))
            for n in range(wide):
                b0, b1, b2, b3 = ptx.ldmatrix_x4t(sh, int32(value + 16 * pitch * k + 4 * ((first + 2 * n) ^ turn)))
                o = 8 * n
                acc[o], acc[o + 1], acc[o + 2], acc[o + 3] = ptx.mma_f16(
                    a0, a1, a2, a3, b0, b1, acc[o], acc[o + 1], acc[o + 2], acc[o + 3]
                )
                acc[o + 4], acc[o + 5], acc[o + 6], acc[o + 7] = ptx.mma_f16(
                    a0, a1, a2, a3, b2, b3, acc[o + 4], acc[o + 5], acc[o + 6], acc[o + 7]
                )
                o = 8 * (wide + n)
                acc[o], acc[o + 1], acc[o + 2], acc[o + 3] = ptx.mma_f16(
                    c0, c1, c2, c3, b0, b1, acc[o], acc[o + 1], acc[o + 2], acc[o + 3]
                )
                acc[o + 4], acc[o + 5], acc[o + 6], acc[o + 7] = ptx.mma_f16(
                    c0, c1, c2, c3, b2, b3, acc[o + 4], acc[o + 5], acc[o + 6], acc[o + 7]
                )
            k = ptx.shfl_idx_i(int32(k + 1), int32(0))

    @device
    def leave(out, acc, row, place, factor, across, lane):
        """The lane's part of one query's results, times `factor`."""
        at = int32(place * value_dim + 16 * wide * across + 2 * (lane & 3))
        o = 8 * wide * (row >> 1) + 2 * (row & 1)
        for n in range(2 * wide):
            ptx.stf2(out, int32(at + 8 * n), acc[o + 4 * n] * factor, acc[o + 4 * n + 1] * factor)

    return bring, put_queries, scores, weigh, leave


def make(key_dim, value_dim):
    pitch, sums = key_dim // 2, value_dim // ACROSS
    bring, put_queries, scores, weigh, leave = make_parts(key_dim, value_dim)

    @device
    def place_of(index, end, first, branch, lists, at, before, middle, pages, layer_at, tid):
        """Where the slot lies that the lane brings of the tile at `index`."""
        own = int32(min(int32(index + (tid >> 2)), int32(end - 1)))
        slot = tree_slot_at(own, int32(0), first, branch, lists, at, before, middle)
        return page_of(pages, slot) + int64(layer_at) * 512 + int64((slot & 255) * (2 * key_dim))

    @device
    def soften(sh, weights, parts, s, acc, tops, totals, half, row0, across, lane):
        """Scores to weights, which the four warps put side by side; sums so far to the new scale."""
        put_tops(parts, s, row0, across, lane)
        ptx.bar_sync(int32(1 + half), int32(32 * ACROSS))
        for i in range(ROWS):
            r = int32(row0 + 8 * i)
            top = tops[i]
            for n in range(ACROSS):
                top = max(top, parts[uint32(QUERIES * n + r)])
            factor = ptx.ex2(tops[i] - top)
            tops[i] = top
            totals[i] = totals[i] * factor + put_weights(sh, weights, s, i, r, top, across, lane)
            o = sums // 2 * (i >> 1) + 2 * (i & 1)
            for n in range(sums // 8):
                acc[o + 4 * n] *= factor
                acc[o + 4 * n + 1] *= factor
        ptx.bar_sync(int32(1 + half), int32(32 * ACROSS))

    @device
    def finish(parts, out, facts, acc, tops, totals, to, live, half, row0, across, lane):
        """Sums become results, or those of a split, which keep their scale and the sum of weights."""
        for i in range(ROWS):
            total = sum_of_row(totals[i])
            if lane & 3 == 0:
                parts[uint32(QUERIES * across + row0 + 8 * i)] = total
        ptx.bar_sync(int32(1 + half), int32(32 * ACROSS))
        for i in range(ROWS):
            r = int32(row0 + 8 * i)
            total = float32(0)
            for n in range(ACROSS):
                total = float32(total + parts[uint32(QUERIES * n + r)])
            factor = ptx.rcp(total)
            if r < live:
                if cuda.gridDim.z > 1:
                    factor = float32(1)
                    if lane & 3 == 0 and across == 0:
                        ptx.stf2(facts, int32(2 * (to + r)), tops[i], total)
                leave(out, acc, i, int32(to + r), factor, across, lane)

    @kernel("FFFIIIIILiiiiif", threads=THREADS, since=90, before=120, name=f"latent_attention_tile_{key_dim}_{value_dim}")
    def latent_attention_tile(
        q, out, facts, cells, lists, positions, shared, branches, pages, heads, together, tokens, layer_at, flags, scale
    ):
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=16)
        lows, stops = cuda.shared.array(QUERIES, int32), cuda.shared.array(QUERIES, int32)
        begins, owns = cuda.shared.array(QUERIES, int32), cuda.shared.array(QUERIES, int32)
        parts = cuda.shared.array(PARTS, float32)  # largest scores, then sums of weights, of each warp
        tid = int32(cuda.threadIdx.x)
        lane, across, half = int32(tid & 31), int32((tid >> 5) & 3), int32(tid >> 7)
        first_row = int32((cuda.gridDim.x - 1 - cuda.blockIdx.x) * tokens)  # the rows that see most start first
        first_head = int32(cuda.blockIdx.y * together)
        ptx.pdl_wait()
        rows = int32(cells[0])
        end = int32(cells[1] + rows)
        first, branch, at, before, middle = int32(NOWHERE), int32(0), int32(0), int32(0), int32(0)
        if flags & PARTED != 0:
            rows = int32(cells[PLAIN])
        if flags & APART != 0:
            rows, own, _, first, branch, at, before, middle = tree_slots(
                int32(0), int32(PARTED), first_row, int32(0), cells, lists, positions, shared, branches
            )
            end = int32(first + middle + own + 1 - branch)
        if first_row >= rows:
            return
        live = int32(min(together, int32(heads - first_head)) * min(tokens, int32(rows - first_row)))
        if flags & APART != 0:
            put_count(lows, stops, begins, owns, end, tid)
        else:
            put_bounds(lows, stops, begins, owns, first_row, rows, together, live, cells, shared, branches, tid)
        cuda.syncthreads()
        tile_a, tiles_a, tile_b, tiles_b = tiles_of(lows, stops, begins, owns, SLOTS, lane)
        # slots that every query sees need no mask
        all_low, all_stop = most_of(lows, lane), least_of(stops, lane)
        all_begin, all_own = most_of(begins, lane), least_of(owns, lane)
        furthest = owns[uint32(32 * half + 31)]  # own slots ascend with the queries
        working = 32 * half < live
        if not working:
            furthest = int32(-1)
        tiles = int32(tiles_a + tiles_b)
        tile, last, _, _ = share_of(tiles, int32(1), int32(cuda.blockIdx.z), int32(cuda.gridDim.z))
        if tile >= tiles:  # of more splits than tiles
            if tid < live:
                to = int32(first_row * heads + first_head + cuda.blockIdx.z * cuda.gridDim.x * heads)
                ptx.stf2(facts, int32(2 * (to + tid)), float32(FLOOR), float32(0))
            return
        slot, following = slot_of(tile, tile_a, tiles_a, tile_b), slot_of(int32(tile + 1), tile_a, tiles_a, tile_b)
        keys, weights, other = int32(QUERIES * pitch), int32((QUERIES + 2 * SLOTS) * pitch), int32(SLOTS * pitch)
        place = place_of(slot, end, first, branch, lists, at, before, middle, pages, layer_at, tid)
        bring(sh, keys, place, int32(slot + (tid >> 2)), end, tid)
        ptx.cp_async_commit()
        place = place_of(following, end, first, branch, lists, at, before, middle, pages, layer_at, tid)
        put_queries(sh, q, int32(first_row * heads + first_head), live, unit_of(scale, float32(0)), tid)
        acc, s = cuda.local.array(sums, float32), cuda.local.array(16, float32)
        for n in range(sums):
            acc[n] = float32(0)
        tops, totals = cuda.local.array(ROWS, float32), cuda.local.array(ROWS, float32)
        for i in range(ROWS):
            tops[i] = float32(FLOOR)
            totals[i] = float32(0)
        row0 = int32(32 * half + (lane >> 2))
        while tile <= last:
            ptx.cp_async_wait(0)
            cuda.syncthreads()
            now = keys
            keys = int32(QUERIES * pitch + other)
            other = int32(SLOTS * pitch - other)
            if tile < last:
                bring(sh, keys, place, int32(following + (tid >> 2)), end, tid)
                ptx.cp_async_commit()
            behind = slot_of(int32(tile + 2), tile_a, tiles_a, tile_b)
            place = place_of(behind, end, first, branch, lists, at, before, middle, pages, layer_at, tid)
            if slot <= furthest:
                scores(sh, now, s, half, across, lane)
                inside = slot >= all_low and slot + SLOTS <= all_stop
                if not (inside or (slot >= all_begin and slot + SLOTS - 1 <= all_own)):
                    for i in range(ROWS):
                        r = uint32(row0 + 8 * i)
                        hide(s, i, int32(slot + 16 * across + 2 * (lane & 3)), lows[r], stops[r], begins[r], owns[r])
                soften(sh, weights, parts, s, acc, tops, totals, half, row0, across, lane)
                weigh(sh, weights, now, acc, half, across, lane)
            slot, following, tile = following, behind, int32(tile + 1)
        if working:
            to = int32(first_row * heads + first_head + cuda.blockIdx.z * cuda.gridDim.x * heads)
            finish(parts, out, facts, acc, tops, totals, to, live, half, row0, across, lane)

    return latent_attention_tile


@kernel("FFFii", threads=JOINERS, since=90, before=120)
def latent_attention_join(sums, facts, out, value_dim, splits):
    ptx.pdl_launch()
    ptx.pdl_wait()
    place, apart = int32(cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x), int32(cuda.gridDim.x * cuda.gridDim.y)
    whole, found = cuda.local.array(4, float32), cuda.local.array(JOINED, float32)
    at = int32(4 * cuda.threadIdx.x)
    while at < value_dim:
        peak, weight = float32(FLOOR), float32(0)
        for i in range(4):
            whole[i] = float32(0)
        split = int32(0)
        while split < splits:
            for n in range(JOINED // 4):
                here = int32((place + min(int32(split + n), int32(splits - 1)) * apart) * value_dim + at)
                found[4 * n], found[4 * n + 1], found[4 * n + 2], found[4 * n + 3] = ptx.ldf4(sums, here)
            for n in range(JOINED // 4):
                top, total = ptx.ldf2(facts, int32(2 * (place + min(int32(split + n), int32(splits - 1)) * apart)))
                if split + n < splits and total > float32(0):
                    peak, old, new = higher(peak, top)
                    weight = ptx.fmaf(total, new, float32(weight * old))
                    for i in range(4):
                        whole[i] = ptx.fmaf(found[4 * n + i], new, float32(whole[i] * old))
            split = int32(split + JOINED // 4)
        share = ptx.rcp(weight)
        ptx.stf4(out, int32(place * value_dim + at), whole[0] * share, whole[1] * share, whole[2] * share, whole[3] * share)
        at = int32(at + 4 * JOINERS)


for sizes in SIZES:
    make(*sizes)
