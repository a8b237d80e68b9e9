"""attention_row: attention of few rows over the paged float16 cache (ops/attention.py), split over the visible slots.

    attention_row_<64|128|any>: 64 and 128 for key_dim = value_dim of that size, any for dims up to 512. 256 threads.
    grid (kv_heads * ceil(group / 8), splits <= 64, rows), group = heads / kv_heads
    dynamic shared memory, in words, with kw = (16 ceil(key_dim / 32) + 4), vw = 4 (ceil(value_dim / 8) | 1):
        tile (kw + vw) + 16 kw + max(16 (tile / 2 + 4), 8 max(key_dim, value_dim))
    partials: rows * grid x * splits * (8 value_dim + 16) floats; counters: rows * grid x words, zero before the first launch

A block takes up to 8 query heads of one key head and every tile of its split; the split's share of the visible slots is computed
from the cells, so that one grid serves a growing context: splits without a tile leave. Of several active splits the last to finish
adds all of them up in order. Products run on tensor cores with q and the weights in two halves each, high part in rows 0 to 7,
low part in rows 8 to 15, so that only keys and values are rounded to float16.

q [rows, heads * key_dim] by q_stride; out [rows, heads * value_dim]. sinks [heads], with flag 128. cap 0: no soft cap.
window 0: all, -c: of chunks of c positions the own one. tile: slots, up to 128: a multiple of 64 (any: of 32). least: tiles that a
split takes at least. lists: of attention_tree. flags as in attention_inputs, and
    32 inputs: rows = 1, and the kernel does the work of attention_inputs: q, k, v are the plain products
    64 early (with inputs): cells, positions, shared, branch, pages and the cache up to first_slot are read before the wait for the
       kernels before this one. Right when none of these was written since the step's first kernel, and that one was launched
       without programmatic dependence.
    256 rest (of attention_row_any, without 32): keys and values of the batch's own slots, from cells[1] on, are sums of what the
       cache holds and of what `rest` does, as attention_inputs leaves it
    128 sinks: each head has one more score, neither scaled nor capped, whose value is zero; whoever writes a result counts it
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import attention_cache as cache
from . import ptx
from .attention_cache import REST, RING, make_copy, over, page_of, slot_at, tree_slot_at
from .attention_inputs import K_NORM, NEOX, NORM_AFTER, Q_NORM, append, half_pair, make_turned
from .attention_join import HIDDEN, LOG2E, make_fold, make_join, make_leave, share_beside, sink_of
from .export import device, kernel

INPUTS, EARLY = 32, 64
MAX_SPLITS = 64
DIMS = 64, 128, 0  # 0: any
SIGNATURE = "FFFFFUFFFFIIIIILUiiiiiiiiiiifff"


@device
def capped(score, cap):
    """Soft cap of a score, times log2(e). tanh.approx would be too coarse."""
    x = score * (float32(2 * LOG2E) * ptx.rcp(cap))
    return cap * float32(LOG2E) * (float32(1) - float32(2) * ptx.rcp(float32(1) + ptx.ex2(x)))


@device
def split_halves(stage, base, dim, padded, factor, sh, high, low, lane):
    """factor * stage[base:base + dim] as two float16 rows of `padded` values whose sum it is."""
    w = lane
    while 2 * w < padded:
        a = float32(0)
        b = float32(0)
        if 2 * w < dim:
            a = ptx.ldsf(stage, int32(base + 2 * w)) * factor
        if 2 * w + 1 < dim:
            b = ptx.ldsf(stage, int32(base + 2 * w + 1)) * factor
        h = half_pair(a, b)
        ptx.sts32(sh, int32(high + w), h)
        if low >= 0:
            ptx.sts32(sh, int32(low + w), ptx.f2h2(a - ptx.h2f_lo(h), b - ptx.h2f_hi(h)))
        w = int32(w + 32)


@device
def unit_of(scale, cap):
    """What queries are multiplied by: without a soft cap scores are exponents of two at once."""
    unit = float32(scale)
    if cap == float32(0):
        unit = float32(scale * float32(LOG2E))
    return unit


@device
def reads_early(flags, kd, vd):
    early = int32(0)
    if flags & INPUTS != 0 and (kd | vd) & 7 == 0:  # other rows are copied with plain loads
        early = int32(flags & EARLY)
    return early


@device
def prefetch_norms(flags, q_norm, k_norm, dim, tid):
    if flags & INPUTS != 0 and 32 * tid < dim:
        if flags & Q_NORM != 0:
            ptx.prefetch_l2(q_norm, int32(32 * tid))
        if flags & K_NORM != 0:
            ptx.prefetch_l2(k_norm, int32(32 * tid))


@device
def heads_of(block, group):
    """(key head, which 8 of its query heads, the first of those, their count) of a block."""
    parts = int32((group + 7) >> 3)
    kv_head = block
    if parts > 1:
        kv_head = over(block, parts)
    part = int32(block - kv_head * parts)
    return kv_head, part, int32(kv_head * group + 8 * part), int32(min(int32(8), int32(group - 8 * part)))


def make_prepare(turned):
    @device
    def prepare(
        sh, stage, queries, key_row, value_row, kw, q, k, v, q_norm, k_norm, angles, q_at, kv_head, count, mine, kd, vd, pairs,
        flags, unit, eps, key_place, value_place, warp, lane,
    ):  # fmt: skip
        """Queries in two halves to shared memory; with `mine` also the own key and value, which go to their places in the cache
        too where these are not 0."""
        item = warp
        while item < count + mine:
            source = q
            norm = q_norm
            at = int32(q_at + item * kd)
            width = kd
            padded = int32((kd + 31) & -32)
            turns = pairs
            normed = int32(flags & Q_NORM)
            high = int32(queries + item * kw)
            low = int32(high + 8 * kw)
            factor = unit
            place = key_place
            if item >= count:
                low = int32(-1)
                factor = float32(1)
            if item == count:
                source = k
                norm = k_norm
                at = int32(kv_head * kd)
                normed = int32(flags & K_NORM)
                high = key_row
            if item > count:
                source = v
                at = int32(kv_head * vd)
                width = vd
                padded = int32((vd + 7) & -8)
                high = value_row
                place = value_place
            if item > count or flags & INPUTS == 0:
                turns = int32(0)
                normed = int32(0)
            after = int32(flags & NORM_AFTER)
            neox = int32(flags & NEOX)
            turned(sh, stage, source, at, norm, angles, int32(0), width, turns, normed, after, neox, eps, lane)
            split_halves(sh, stage, width, padded, factor, sh, high, low, lane)
            if item >= count and place != 0:
                append(sh, stage, place, width, lane)
            cuda.syncwarp()
            item = int32(item + 8)

    return prepare


def make_scores(limit):
    double_steps = (limit + 31) // 32

    @device
    def scores(sh, queries, kw, kd, full, here, cap, score, before, warp, lane):
        """Scores of 8 heads for the slots from 8 warp and from 64 + 8 warp; the largest of this lane. before: parts of them, to
        which this one is added, without a cap."""
        peak = float32(HIDDEN)
        steps = int32((kd + 31) >> 5)
        for h in range(2):
            score[2 * h] = float32(HIDDEN)
            score[2 * h + 1] = float32(HIDDEN)
            slot = int32(8 * warp + 64 * h)
            if slot < full:
                c0 = c1 = c2 = c3 = e0 = e1 = e2 = e3 = float32(0)
                for s in range(double_steps):
                    if s < steps:
                        at = int32(queries + (lane & 15) * kw + 16 * s + 4 * (lane >> 4))
                        a0, a1, a2, a3 = ptx.ldmatrix_x4(sh, at)
                        a4, a5, a6, a7 = ptx.ldmatrix_x4(sh, int32(at + 8))
                        at = int32((slot + (lane & 7)) * kw + 16 * s + 4 * (lane >> 3))
                        b0, b1, b2, b3 = ptx.ldmatrix_x4(sh, at)
                        c0, c1, c2, c3 = ptx.mma_f16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
                        e0, e1, e2, e3 = ptx.mma_f16(a4, a5, a6, a7, b2, b3, e0, e1, e2, e3)
                x = float32(before[2 * h] + float32((c0 + e0) + (c2 + e2)))
                y = float32(before[2 * h + 1] + float32((c1 + e1) + (c3 + e3)))
                before[2 * h], before[2 * h + 1] = x, y
                if cap > float32(0):
                    x = capped(x, cap)
                    y = capped(y, cap)
                slot = int32(slot + 2 * (lane & 3))
                if slot < here:
                    score[2 * h] = x
                if slot + 1 < here:
                    score[2 * h + 1] = y
                peak = max(peak, max(score[2 * h], score[2 * h + 1]))
        return peak

    return scores


@device
def put_peak(tops, peak, warp, lane):
    """The warp's largest score of each head to tops[8 warp:]."""
    peak = max(peak, ptx.shfl_xor(peak, 1))
    peak = max(peak, ptx.shfl_xor(peak, 2))
    if lane & 3 == 0:
        tops[uint32(8 * warp + (lane >> 2))] = peak


@device
def put_total(totals, total, warp, lane):
    """The warp's sum of weights of each head to totals[8 warp:]."""
    total += ptx.shfl_xor(total, 1)
    total += ptx.shfl_xor(total, 2)
    if lane & 3 == 0:
        totals[uint32(8 * warp + (lane >> 2))] = total


@device
def highest(tops, top, lane):
    for w in range(8):
        top = max(top, tops[uint32(8 * w + (lane >> 2))])
    return top


@device
def summed(totals, lane):
    total = float32(0)
    for w in range(8):
        total += totals[uint32(8 * w + (lane >> 2))]
    return total


@device
def put_weights(sh, weights, pw, full, score, top, warp, lane):
    """Weights exp2(score - top) in two halves to shared memory; their sum in this lane."""
    total = float32(0)
    for h in range(2):
        if 8 * warp + 64 * h < full:
            x = ptx.ex2(score[2 * h] - top)
            y = ptx.ex2(score[2 * h + 1] - top)
            total += x + y
            high = ptx.f2h2(x, y)
            at = int32(weights + (lane >> 2) * pw + 4 * warp + 32 * h + (lane & 3))
            ptx.sts32(sh, at, high)
            ptx.sts32(sh, int32(at + 8 * pw), ptx.f2h2(x - ptx.h2f_lo(high), y - ptx.h2f_hi(high)))
    return total


@device
def soften(sh, weights, pw, full, score, tops, totals, top, total, warp, lane):
    """The weights of a tile; the new top and total, and what sums so far are multiplied by."""
    peak = highest(tops, top, lane)
    factor = ptx.ex2(top - peak)
    total = total * factor + put_weights(sh, weights, pw, full, score, peak, warp, lane)
    put_total(totals, total, warp, lane)
    return peak, total, factor


def make_weigh(columns, exact):
    """`exact`: 64 columns dims, and slots in multiples of 64."""
    steps, slots = (2, 64) if exact else (4, 32)
    halves = slots // 32

    @device
    def weigh(sh, weights, pw, values, vw, vd, full, acc, odd, warp, lane):
        """Adds weights x values for the groups of 8 dims warp, warp + 8, ... to the sums: acc of even, odd of odd 16 slots."""
        groups = int32((vd + 7) >> 3)
        for s in range(steps):
            if slots * s < full:
                for h in range(halves):
                    at = int32(weights + (lane & 15) * pw + slots // 2 * s + 16 * h + 4 * (lane >> 4))
                    a0, a1, a2, a3 = ptx.ldmatrix_x4(sh, at)
                    a4, a5, a6, a7 = ptx.ldmatrix_x4(sh, int32(at + 8))
                    for i in range(columns):
                        there = warp + 8 * i < groups
                        if exact or there:
                            at = int32(values + (slots * s + 32 * h + lane) * vw + 4 * (warp + 8 * i))
                            b0, b1, b2, b3 = ptx.ldmatrix_x4t(sh, at)
                            acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3] = ptx.mma_f16(
                                a0, a1, a2, a3, b0, b1, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]
                            )
                            odd[4 * i], odd[4 * i + 1], odd[4 * i + 2], odd[4 * i + 3] = ptx.mma_f16(
                                a4, a5, a6, a7, b2, b3, odd[4 * i], odd[4 * i + 1], odd[4 * i + 2], odd[4 * i + 3]
                            )

    return weigh


def make_give(tree, put, leave):
    @device
    def give(acc, odd, sums, out, to, vd, top, total, all_top, all_total, sink, warp, lane):
        """The sums of all slots to out."""
        if tree:
            put(sums, out, to, vd, share_beside(all_top, all_total, sink), warp, lane)
        else:
            leave(acc, odd, out, to, vd, share_beside(top, total, sink), warp, lane)

    return give


def make_bring(copy):
    @device
    def bring_rest(sh, to, words, rest, ring, dim, width, start, here, low, first, branch, lists, at, before, middle, tid, batch):
        """What float16 leave of keys or values to where these are, as soon as nobody reads them any more; there when it returns."""
        cuda.syncthreads()
        copy(
            sh, to, words, rest, ring, dim, width, start, here, int32(-1), low, first, branch, lists, at, before, middle, tid,
            batch,
        )  # fmt: skip
        ptx.cp_async_commit()
        ptx.cp_async_wait(0)
        cuda.syncthreads()

    return bring_rest


@device
def places_of(kd, vd, tile):
    """Words of a row of keys, of values and of weights, and where values, queries and weights begin; keys begin at 0. The stages
    of `prepare` lie where the weights come later."""
    kw = int32((((kd + 31) & -32) >> 1) + 4)
    vw = int32(4 * (((vd + 7) >> 3) | 1))
    values = int32(tile * kw)
    queries = int32(values + tile * vw)
    return kw, vw, int32((tile >> 1) + 4), values, queries, int32(queries + 16 * kw)


@device
def layer_of(layer_at, kv_head, kv_heads, kd, vd):
    """Bytes from the start of a page to the keys and to the values of a head."""
    keys = int64(layer_at) * 512
    return keys + int64(kv_head * 512) * kd, keys + int64(kv_heads * 512) * kd + int64(kv_head * 512) * vd


@device
def places_of_own(pages, own, key_at, value_at, kd, vd):
    page = page_of(pages, own)
    return page + key_at + int64(2 * kd * (own & 255)), page + value_at + int64(2 * vd * (own & 255))


def make(dim, module, tree=False):
    """The kernel for heads of `dim`, 0: of any; for the file `module` (a kernel's image is that of its file). `tree`: rows may see
    runs of slots, see attention_tree.py."""
    limit = dim if dim else 512
    slots_of, share = (cache.tree_slots, cache.part_of) if tree else (cache.seen_slots, cache.share_of)
    row_of = cache.row_in_branch if tree else cache.own_row
    rounding = 64 if dim else 32
    columns = limit // 64  # groups of 8 value dims per warp
    sums = columns * 4
    whole = not dim and not tree  # with REST
    copy, copy_rest = (make_copy(dim, tree_slot_at if tree else slot_at, rest) for rest in (False, whole))
    bring_rest = make_bring(copy_rest)
    prepare, scores = make_prepare(make_turned(1 if dim else 4)), make_scores(limit)
    weigh, leave = make_weigh(columns, bool(dim)), make_leave(columns)
    join, (fold, put) = make_join(leave, tree), make_fold(columns)
    give = make_give(tree, put, leave)

    def attention_row(
        q, k, v, out, partials, counters, q_norm, k_norm, angles, sinks, cells, lists, positions, shared, branches, pages,
        rest, q_stride, heads, kv_heads, key_dim, value_dim, pairs, layer_at, window, tile, least, flags, scale, cap, eps,
    ):  # fmt: skip
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=16)
        tops, totals, last = cuda.shared.array(64, float32), cuda.shared.array(64, float32), cuda.shared.array(1, int32)
        tid, split, row = int32(cuda.threadIdx.x), int32(cuda.blockIdx.y), row_of(flags, cells, int32(cuda.blockIdx.z))
        lane, warp = int32(tid & 31), int32(tid >> 5)
        kd = int32(dim) if dim else key_dim
        vd = int32(dim) if dim else value_dim
        kv_head, part, head, count = heads_of(int32(cuda.blockIdx.x), over(heads, kv_heads))
        kw, vw, pw, values, queries, weights = places_of(kd, vd, tile)
        key_at, value_at = layer_of(layer_at, kv_head, kv_heads, kd, vd)
        early = reads_early(flags, kd, vd)
        where = slots_of(early, flags, row, window, cells, lists, positions, shared, branches)
        rows, own, low, first, branch, at, before, middle = where
        seen = int32(first + middle + own + 1 - branch)
        tiles = over(int32(seen + tile - 1), tile)  # a split takes its own from the last on: the own slot is in the very last
        begin, t, active, each = share(tiles, least, split, int32(cuda.gridDim.y))
        alone = cuda.gridDim.y == 1 or active == 1
        busy = row < rows and t >= begin
        none, mine, skip = int32(0), int32(0), int32(-1)  # mine 2: this block gets the key and value of the own slot from k and v
        key_place, value_place = int64(0), int64(0)
        if flags & INPUTS != 0 and t == tiles - 1:
            mine, skip = int32(2), int32(seen - 1)
        start, here = int32(t * tile), int32(min(tile, int32(seen - t * tile)))
        if busy:
            copy(
                sh, none, kw, pages, key_at, kd, int32(32), start, here, skip, low, first, branch, lists, at, before, middle,
                tid, none,
            )  # fmt: skip
            ptx.cp_async_commit()
            copy(
                sh, values, vw, pages, value_at, vd, int32(8), start, here, skip, low, first, branch, lists, at, before, middle,
                tid, none,
            )  # fmt: skip
            ptx.cp_async_commit()
            if mine != 0 and part == 0:
                key_place, value_place = places_of_own(pages, own, key_at, value_at, kd, vd)
            prefetch_norms(flags, q_norm, k_norm, kd, tid)
        if early != 0:
            ptx.pdl_wait()
        if not busy:
            return
        prepare(
            sh, int32(weights + warp * max(kd, vd)), queries, int32((here - 1) * kw), int32(values + (here - 1) * vw), kw, q, k, v,
            q_norm, k_norm, angles, int32(row * q_stride + head * kd), kv_head, count, mine, kd, vd, pairs, flags,
            unit_of(scale, cap), eps, key_place, value_place, warp, lane,
        )  # fmt: skip
        top, total = float32(HIDDEN), float32(0)
        acc, odd = cuda.local.array(sums, float32), cuda.local.array(sums, float32)
        all_top, all_total, all_sums = float32(HIDDEN), float32(0), cuda.local.array(sums, float32)
        for i in range(sums):
            acc[i], odd[i], all_sums[i] = float32(0), float32(0), float32(0)
        score, sums_so_far = cuda.local.array(4, float32), cuda.local.array(4, float32)
        turns, batch = int32(1), int32(0)  # with REST two: what float16 leave comes behind them, to the same places
        if whole and flags & REST != 0:
            turns, batch = int32(2), int32(cells[1])
        ring_at, ring_values = int64(kv_head) * (2 * RING) * kd, int64(2 * RING) * (kv_heads * kd + kv_head * vd)
        while t >= begin:
            full = int32((here + rounding - 1) & -rounding)
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            peak, turn = float32(HIDDEN), int32(0)
            for i in range(4):
                sums_so_far[i] = float32(0)
            while turn < turns:
                if turn > 0:
                    bring_rest(
                        sh, int32(0), kw, rest, ring_at, kd, int32(32), start, here, low, first, branch, lists, at, before, middle,
                        tid, batch,
                    )  # fmt: skip
                turn = int32(turn + 1)
                limited = cap if turn == turns else float32(0)
                peak = scores(sh, queries, kw, kd, full, here, limited, score, sums_so_far, warp, lane)
            put_peak(tops, peak, warp, lane)
            cuda.syncthreads()
            if t > begin:
                copy(
                    sh, int32(0), kw, pages, key_at, kd, int32(32), int32(start - tile), tile, int32(-1),
                    low, first, branch, lists, at, before, middle, tid, int32(0),
                )  # fmt: skip
            ptx.cp_async_commit()
            top, total, factor = soften(sh, weights, pw, full, score, tops, totals, top, total, warp, lane)
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            for i in range(sums):
                acc[i] *= factor
                odd[i] *= factor
            turn = int32(0)
            while turn < turns:
                if turn > 0:
                    bring_rest(
                        sh, values, vw, rest, ring_values, vd, int32(8), start, here, low, first, branch, lists, at, before, middle,
                        tid, batch,
                    )  # fmt: skip
                turn = int32(turn + 1)
                weigh(sh, weights, pw, values, vw, vd, full, acc, odd, warp, lane)
            if t > begin:
                cuda.syncthreads()
                copy(
                    sh, values, vw, pages, value_at, vd, int32(8), int32(start - tile), tile, int32(-1),
                    low, first, branch, lists, at, before, middle, tid, int32(0),
                )  # fmt: skip
            ptx.cp_async_commit()
            if tree and alone and t == over(t, each) * each:
                all_top, all_total = fold(acc, odd, all_sums, all_top, all_total, top, summed(totals, lane))
                top, total = float32(HIDDEN), float32(0)
            t, start, here = int32(t - 1), int32(start - tile), tile
        total = summed(totals, lane)
        to = int32((row * heads + head) * vd)
        if alone:
            if lane >> 2 < count:
                sink = sink_of(sinks, int32(head + (lane >> 2)), flags)
                to = int32(to + (lane >> 2) * vd)
                give(acc, odd, all_sums, out, to, vd, top, total, all_top, all_total, sink, warp, lane)
            return
        block = int32(cuda.blockIdx.z * cuda.gridDim.x + cuda.blockIdx.x)
        join(sh, acc, odd, partials, counters, out, sinks, to, head, block, split, active, count, vd, top, total, last, flags, tid)

    attention_row.__module__ = module
    return attention_row


for dim in DIMS:
    kernel(SIGNATURE, threads=256, blocks=2 if dim else 1, name=f"attention_row_{dim or 'any'}")(make(dim, __name__))
