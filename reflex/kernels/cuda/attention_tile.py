"""attention_tile: attention of many rows over the paged float16 cache (ops/attention.py), on tensor cores with online softmax.

    attention_tile_<64|80|96|128|256>: key_dim = value_dim of that size. 128 threads.
    grid (ceil(rows / 64), heads)
    dynamic shared memory, in bytes: 2 * slots * pitch, slots = 64 and pitch = 2 dim + 16; dim 256: slots = 32, and 64 * pitch more

A block computes 64 rows of one query head, 16 per warp, over the tiles of slots that any of its rows sees; a tile lies in one
page. q (scaled) and the weights are rounded to float16, sums are float32.

q [rows, heads * dim] by q_stride; out [rows, heads * dim]. cap 0: no soft cap; window as in attention_row; layer_at in
units of 512 bytes. sinks [heads], with flag 128 as in attention_row. flags: 16 only the first cells[4] rows are computed. Every key
and value of the batch is in the cache. Where there are no more than `few` rows nothing is done: attention_scores and attention_sums
have the same results.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_cache import PARTED, PLAIN, over, page_of, window_at
from .attention_inputs import half_pair
from .attention_join import HIDDEN, share_beside, sink_of, sum_with, weight_of
from .attention_row import capped, unit_of
from .export import device, kernel

FLOOR = -1e29  # above HIDDEN: a row that sees nothing of the first tiles gives them weight 0
NOWHERE = 1 << 30


def make_copy(dim, slots):
    passes = slots * dim // 8 // 128
    row_parts = dim // 8
    pitch = dim // 2 + 4

    @device
    def copy(sh, to, pages, offset, slot, end, tid):
        """Rows of the slots from `slot` on their way to shared memory, zeros from slot `end` on."""
        here = page_of(pages, slot) + offset + int64((slot & 255) * (2 * dim))
        for i in range(passes):
            part = int32(tid + 128 * i)
            row = int32(uint32(part) // uint32(row_parts))
            size = uint32(16)
            if slot + row >= end:
                size = uint32(0)
            ptx.cp_async16z(sh, int32(to + row * pitch + 4 * (part - row * row_parts)), here, int64(16 * part), size)

    return copy


@device
def query_pair(q, at, unit):
    a, b = ptx.ldf2(q, at)
    return half_pair(a * unit, b * unit)


@device
def bounds_of(token, window, cells, positions, shared, branches):
    """What a row sees: [low, stop) and [begin, own]. Reads only what the host wrote before the step's first kernel."""
    own = int32(int32(ptx.ldg32(cells, 1)) + token)
    begin = int32(ptx.ldg32(branches, token))
    stop = int32(min(int32(ptx.ldg32(shared, token)), begin))
    low = int32(0)
    position = int32(ptx.ldg32(positions, token))
    mine = window_at(window, position)
    if mine > 0:
        low = int32(max(int32(0), int32(position - mine + 1)))
        begin = int32(max(begin, int32(own - mine + 1)))
    if low >= stop:
        low = int32(NOWHERE)
        stop = int32(0)
    return low, stop, begin, own


@device
def put_bounds(lows, stops, begins, owns, first_row, rows, window, cells, positions, shared, branches, tid):
    """The bounds of each row of the block."""
    if tid < 64:
        token = int32(min(int32(first_row + tid), int32(rows - 1)))
        low, stop, begin, own = bounds_of(token, window, cells, positions, shared, branches)
        lows[uint32(tid)] = low
        stops[uint32(tid)] = stop
        begins[uint32(tid)] = begin
        owns[uint32(tid)] = own


@device
def least_of(bounds, lane):
    return int32(ptx.redux_min(uint32(min(bounds[uint32(lane)], bounds[uint32(lane + 32)]))))


@device
def most_of(bounds, lane):
    return int32(ptx.redux_max(uint32(max(bounds[uint32(lane)], bounds[uint32(lane + 32)]))))


@device
def tiles_of(lows, stops, begins, owns, slots, lane):
    """(first tile, count) that any row sees of the first range, then of the second without those."""
    tile_a = int32(least_of(lows, lane) // slots)
    tiles_a = int32(max(int32(0), int32(int32(most_of(stops, lane) + slots - 1) // slots - tile_a)))
    tile_b = int32(least_of(begins, lane) // slots)
    if tiles_a > 0:
        tile_b = int32(max(tile_b, int32(tile_a + tiles_a)))
    return tile_a, tiles_a, tile_b, int32(max(int32(0), int32(most_of(owns, lane) // slots + 1 - tile_b)))


def make_parts(dim, slots):
    """(put_queries, scores, weigh) for heads of `dim`. Up to 128 the queries stay in registers, else in shared memory."""
    in_registers = dim <= 128
    depth, pitch = dim // 16, dim // 2 + 4
    sums, pairs_of_columns, pairs_of_groups = 4 * slots // 8, dim // 16, slots // 16

    @device
    def put_queries(sh, queries, f, q, at0, at1, unit, warp, lane):
        for k in range(depth):
            a0 = query_pair(q, int32(at0 + 16 * k), unit)
            a1 = query_pair(q, int32(at1 + 16 * k), unit)
            a2 = query_pair(q, int32(at0 + 16 * k + 8), unit)
            a3 = query_pair(q, int32(at1 + 16 * k + 8), unit)
            if in_registers:
                f[4 * k] = a0
                f[4 * k + 1] = a1
                f[4 * k + 2] = a2
                f[4 * k + 3] = a3
            else:
                at = int32(queries + (16 * warp + (lane >> 2)) * pitch + 8 * k + (lane & 3))
                ptx.sts32(sh, at, a0)
                ptx.sts32(sh, int32(at + 8 * pitch), a1)
                ptx.sts32(sh, int32(at + 4), a2)
                ptx.sts32(sh, int32(at + 8 * pitch + 4), a3)

    @device
    def scores(sh, queries, f, s, warp, lane):
        """s = the warp's 16 queries times the keys of a tile."""
        for n in range(sums):
            s[n] = float32(0)
        for k in range(depth):
            o = 4 * k if in_registers else 0
            if not in_registers:
                at = int32(queries + (16 * warp + (lane & 15)) * pitch + 8 * k + 4 * (lane >> 4))
                f[0], f[1], f[2], f[3] = ptx.ldmatrix_x4(sh, at)
            for n in range(pairs_of_groups):
                at = int32((16 * n + (lane & 7) + ((lane >> 4) << 3)) * pitch + 8 * k + 4 * ((lane >> 3) & 1))
                b0, b1, b2, b3 = ptx.ldmatrix_x4(sh, at)
                s[8 * n], s[8 * n + 1], s[8 * n + 2], s[8 * n + 3] = ptx.mma_f16(
                    f[o], f[o + 1], f[o + 2], f[o + 3], b0, b1, s[8 * n], s[8 * n + 1], s[8 * n + 2], s[8 * n + 3]
                )
                s[8 * n + 4], s[8 * n + 5], s[8 * n + 6], s[8 * n + 7] = ptx.mma_f16(
                    f[o], f[o + 1], f[o + 2], f[o + 3], b2, b3, s[8 * n + 4], s[8 * n + 5], s[8 * n + 6], s[8 * n + 7]
                )

    @device
    def weigh(sh, values, s, acc, lane):
        """acc += weights s times the values of a tile."""
        for k in range(pairs_of_groups):
            a0 = ptx.f2h2(s[8 * k], s[8 * k + 1])
            a1 = ptx.f2h2(s[8 * k + 2], s[8 * k + 3])
            a2 = ptx.f2h2(s[8 * k + 4], s[8 * k + 5])
            a3 = ptx.f2h2(s[8 * k + 6], s[8 * k + 7])
            for n in range(pairs_of_columns):
                at = int32(values + (16 * k + (lane & 15)) * pitch + 8 * n + 4 * (lane >> 4))
                b0, b1, b2, b3 = ptx.ldmatrix_x4t(sh, at)
                acc[8 * n], acc[8 * n + 1], acc[8 * n + 2], acc[8 * n + 3] = ptx.mma_f16(
                    a0, a1, a2, a3, b0, b1, acc[8 * n], acc[8 * n + 1], acc[8 * n + 2], acc[8 * n + 3]
                )
                acc[8 * n + 4], acc[8 * n + 5], acc[8 * n + 6], acc[8 * n + 7] = ptx.mma_f16(
                    a0, a1, a2, a3, b2, b3, acc[8 * n + 4], acc[8 * n + 5], acc[8 * n + 6], acc[8 * n + 7]
                )

    return put_queries, scores, weigh


@device
def sum_of_row(x):
    x += ptx.shfl_xor(x, 1)
    return x + ptx.shfl_xor(x, 2)


def make_soften(groups, columns):
    """(hide, soften, fade). `offset` 0 is the first of a lane's two rows, 2 the second."""

    @device
    def hide(s, offset, slot, low, stop, begin, own, lane):
        """Takes the slots that a row does not see out of its scores."""
        for n in range(groups):
            for e in range(2):
                at = int32(slot + 8 * n + 2 * (lane & 3) + e)
                if not ((at >= low and at < stop) or (at >= begin and at <= own)):
                    s[4 * n + e + offset] = float32(HIDDEN)

    @device
    def soften(s, offset, top):
        """Scores to weights exp2(score - top) with the new top: (top, their sum in this lane)."""
        for n in range(groups):
            top = max(top, max(s[4 * n + offset], s[4 * n + 1 + offset]))
        top = max(top, ptx.shfl_xor(top, 1))
        top = max(top, ptx.shfl_xor(top, 2))
        total = float32(0)
        for n in range(groups):
            s[4 * n + offset] = weight_of(s[4 * n + offset], top)
            s[4 * n + 1 + offset] = weight_of(s[4 * n + 1 + offset], top)
            total = sum_with(total, s[4 * n + offset], s[4 * n + 1 + offset])
        return top, total

    @device
    def fade(acc, factor0, factor1):
        for n in range(columns):
            acc[4 * n] *= factor0
            acc[4 * n + 1] *= factor0
            acc[4 * n + 2] *= factor1
            acc[4 * n + 3] *= factor1

    return hide, soften, fade


def make(dim):
    slots = 64 if dim <= 128 else 32
    columns, groups = dim // 8, slots // 8
    pitch = dim // 2 + 4
    values, queries = slots * pitch, 2 * slots * pitch
    fragments = dim // 4 if dim <= 128 else 4
    sums, scores_count = 4 * columns, 4 * groups
    copy = make_copy(dim, slots)
    put_queries, scores, weigh = make_parts(dim, slots)
    hide, soften, fade = make_soften(groups, columns)

    @kernel("FFFIIIILiiiiiiiff", threads=128, blocks=2, name=f"attention_tile_{dim}")
    def attention_tile(
        q, out, sinks, cells, positions, shared, branches, pages, q_stride, heads, kv_heads, layer_at, window, few, flags, scale,
        cap,
    ):  # fmt: skip
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=16)
        lows = cuda.shared.array(64, int32)
        stops = cuda.shared.array(64, int32)
        begins = cuda.shared.array(64, int32)
        owns = cuda.shared.array(64, int32)
        tid = int32(cuda.threadIdx.x)
        lane = int32(tid & 31)
        warp = int32(tid >> 5)
        head = int32(cuda.blockIdx.y)
        first_row = int32((cuda.gridDim.x - 1 - cuda.blockIdx.x) * 64)  # the rows that see most start first
        ptx.pdl_wait()
        rows = int32(cells[0])
        end = int32(cells[1] + rows)
        if flags & PARTED != 0:
            rows = int32(cells[PLAIN])
        if first_row >= rows or rows <= few:
            return
        put_bounds(lows, stops, begins, owns, first_row, rows, window, cells, positions, shared, branches, tid)
        cuda.syncthreads()
        tile_a, tiles_a, tile_b, tiles_b = tiles_of(lows, stops, begins, owns, slots, lane)
        # slots that every row sees need no mask
        all_low = most_of(lows, lane)
        all_stop = least_of(stops, lane)
        all_begin = most_of(begins, lane)
        all_own = least_of(owns, lane)
        row0 = uint32(16 * warp + (lane >> 2))
        row1 = uint32(row0 + 8)
        furthest = owns[uint32(16 * warp + 15)]  # own slots ascend with the rows
        live = first_row + 16 * warp < rows
        kv_head = over(head, over(heads, kv_heads))
        key_at = int64(layer_at) * 512 + int64(kv_head) * (512 * dim)
        value_at = int64(layer_at) * 512 + int64(kv_heads + kv_head) * (512 * dim)
        left = int32(tiles_a + tiles_b)
        slot = int32(tile_a * slots)
        if tiles_a == 0:
            slot = int32(tile_b * slots)
        copy(sh, int32(0), pages, key_at, slot, end, tid)
        ptx.cp_async_commit()
        copy(sh, int32(values), pages, value_at, slot, end, tid)
        ptx.cp_async_commit()
        f = cuda.local.array(fragments, uint32)
        at0 = int32(min(int32(first_row + int32(row0)), int32(rows - 1)) * q_stride + head * dim + 2 * (lane & 3))
        at1 = int32(min(int32(first_row + int32(row1)), int32(rows - 1)) * q_stride + head * dim + 2 * (lane & 3))
        put_queries(sh, int32(queries), f, q, at0, at1, unit_of(scale, cap), warp, lane)
        acc = cuda.local.array(sums, float32)
        for n in range(sums):
            acc[n] = float32(0)
        s = cuda.local.array(scores_count, float32)
        top0 = top1 = float32(FLOOR)
        total0 = total1 = float32(0)
        while left > 0:
            following = int32(slot + slots)
            if left == tiles_b + 1:
                following = int32(tile_b * slots)
            busy = live and slot <= furthest
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            if busy:
                scores(sh, int32(queries), f, s, warp, lane)
            cuda.syncthreads()
            if left > 1:
                copy(sh, int32(0), pages, key_at, following, end, tid)
            ptx.cp_async_commit()
            if busy:
                if cap > float32(0):
                    for n in range(scores_count):
                        s[n] = capped(s[n], cap)
                inside = slot >= all_low and slot + slots <= all_stop
                if not (inside or (slot >= all_begin and slot + slots - 1 <= all_own)):
                    hide(s, 0, slot, lows[row0], stops[row0], begins[row0], owns[row0], lane)
                    hide(s, 2, slot, lows[row1], stops[row1], begins[row1], owns[row1], lane)
                factor0 = top0
                factor1 = top1
                top0, more0 = soften(s, 0, top0)
                top1, more1 = soften(s, 2, top1)
                factor0 = weight_of(factor0, top0)
                factor1 = weight_of(factor1, top1)
                total0 = ptx.fmaf(total0, factor0, more0)
                total1 = ptx.fmaf(total1, factor1, more1)
                fade(acc, factor0, factor1)
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            if busy:
                weigh(sh, int32(values), s, acc, lane)
            cuda.syncthreads()
            if left > 1:
                copy(sh, int32(values), pages, value_at, following, end, tid)
            ptx.cp_async_commit()
            slot = following
            left = int32(left - 1)
        sink = sink_of(sinks, head, flags)
        total0 = share_beside(top0, sum_of_row(total0), sink)
        total1 = share_beside(top1, sum_of_row(total1), sink)
        row = int32(first_row + int32(row0))
        at0 = int32((row * heads + head) * dim + 2 * (lane & 3))
        if row < rows:
            for n in range(columns):
                ptx.stf2(out, int32(at0 + 8 * n), acc[4 * n] * total0, acc[4 * n + 1] * total0)
        if row + 8 < rows:
            for n in range(columns):
                ptx.stf2(out, int32(at0 + 8 * heads * dim + 8 * n), acc[4 * n + 2] * total1, acc[4 * n + 3] * total1)

    return attention_tile


for dim in (64, 80, 96, 128, 256):
    make(dim)
