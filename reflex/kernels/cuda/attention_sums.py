"""attention_sums: the values weighted by what attention_scores left, to the bit as attention_tile weighs them.

    attention_sums_<64|32>: tiles of so many slots: 64 up to key_dim = value_dim = dim = 128, 32 for more. 320 threads.
    grid (ceil(dim / 32), kv_heads, ceil(rows * group / 16)), group = heads / kv_heads
    dynamic shared memory, in bytes: 128 (2 slots + 4) + 80 * 4 slots * STAGES

A block computes 32 dims of 16 pairs of a row and a head. Sums go through all tiles of slots in order, as there: two warps add up,
four tiles a turn, while eight make the weights of the next turn and bring values of later ones. tiles: grid x of attention_scores.
Other parameters as in attention_tile and attention_scores.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_cache import over, page_of
from .attention_join import HIDDEN, share_beside, sink_of, sum_with, weight_of
from .attention_scores import PAIRS, row_of, rows_of, tiles_seen
from .attention_tile import FLOOR, sum_of_row
from .export import device, kernel

TURN = 4  # tiles
STAGES = 3  # turns of values in shared memory
AHEAD = STAGES - 2  # of them still on their way when a turn begins
MAKERS = 256  # threads that make weights, each a pair's fourth of a tile; the two warps behind them add up
WIDTH = 32  # dims
VALUES = 20  # words of a slot's values, and 4 that keep banks apart


@device
def stage_of(turn):
    return int32(uint32(turn) % uint32(STAGES))


@device
def prefetch(pages, offset, dim, first, stop, tid):
    """Asks for the values of the slots from `first` to `stop` long before they are brought."""
    slot = int32(first + tid)
    while slot < stop:
        ptx.prefetch_l2(page_of(pages, slot) + offset, int64((slot & 255) * 2 * dim))
        slot = int32(slot + MAKERS)


def make_bring(slots):
    @device
    def bring(sh, stages, turn, pages, offset, dim, width, first, tiles, end, tid):
        """`width` values of the slots of a turn on their way, zeros from slot `end` on; nothing beyond the last tile."""
        for i in range(TURN * slots * 4 // MAKERS):
            row, part = int32((tid >> 2) + MAKERS // 4 * i), int32(tid & 3)
            slot = int32(TURN * slots * turn + row)
            if slot < tiles * slots and 8 * part < width:
                size = uint32(16)
                at = int32(first * slots + slot)
                if at >= end:
                    size = uint32(0)
                here = page_of(pages, at) + offset + int64((at & 255) * 2 * dim)
                to = int32(stages + (stage_of(turn) * (TURN * slots) + row) * VALUES + 4 * part)
                ptx.cp_async16z(sh, to, here, int64(16 * part), size)

    return bring


def make_weights(slots):
    count = slots // 4  # scores of a thread

    @device
    def load(x, peaks, scores, tops, place, held, turn, tiles, tile, pair, lane4):
        """A thread's scores of a turn, and the tops of all its tiles."""
        for i in range(TURN):
            peaks[i] = float32(FLOOR)
        for i in range(count):
            x[i] = float32(HIDDEN)
        for i in range(TURN):
            if TURN * turn + i < tiles:
                peaks[i] = ptx.bits2f(ptx.ldcg32(tops, int32((place + TURN * turn + i) * held + pair)))
        if TURN * turn + tile < tiles:
            at = int32(((place + TURN * turn + tile) * held + pair) * slots + lane4 * count)
            for i in range(count // 4):
                x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3] = ptx.ldcgf4(scores, int32(at + 4 * i))

    @device
    def weigh(sh, pitch, factors, parts, x, peaks, top, buffer, tile, pair, lane4):
        """Leaves the weights of a thread's scores, their sum, and by how much what came before fades; the new top."""
        before, now = top, top
        for i in range(TURN):
            if i <= tile:
                before = now
                now = max(now, peaks[i])
            top = max(top, peaks[i])
        total = float32(0)
        at = int32((buffer * PAIRS + pair) * pitch + tile * (slots // 2) + lane4)
        for n in range(count // 2):
            a = weight_of(x[2 * n], now)
            b = weight_of(x[2 * n + 1], now)
            total = sum_with(total, a, b)
            ptx.sts32(sh, int32(at + 4 * n), ptx.f2h2(a, b))
        place = uint32((buffer * TURN + tile) * PAIRS + pair)
        parts[uint32(4 * place + uint32(lane4))] = total
        if lane4 == 0:
            factors[place] = weight_of(before, now)
        return top

    return load, weigh


def make_add_up(slots, whole):
    count, steps, each = 2 * TURN, TURN * slots // 16, slots // 16

    @device
    def fetch(sh, f, to, weights, values, step):
        """The weights and the values of 16 slots."""
        f[to], f[to + 1], f[to + 2], f[to + 3] = ptx.ldmatrix_x4(sh, int32(weights + 8 * step))
        f[to + 4], f[to + 5], f[to + 6], f[to + 7] = ptx.ldmatrix_x4t(sh, int32(values + 16 * VALUES * step))

    @device
    def add_up(sh, pitch, stage, factors, acc, buffer, left, lane):
        """One turn, `whole` or of `left` tiles: sums of two groups of 8 dims for 16 pairs. Each step waits for the sums of the one
        before, so that nothing else may make it wait."""
        fades, f = cuda.local.array(count, float32), cuda.local.array(16, uint32)
        weights = int32((buffer * PAIRS + (lane & 15)) * pitch + 4 * (lane >> 4))
        values = int32(stage + (lane & 15) * VALUES + 4 * (lane >> 4))
        fetch(sh, f, 0, weights, values, 0)
        for t in range(TURN):
            fades[2 * t] = factors[uint32((buffer * TURN + t) * PAIRS + (lane >> 2))]
            fades[2 * t + 1] = factors[uint32((buffer * TURN + t) * PAIRS + 8 + (lane >> 2))]
        for i in range(steps):
            o = 8 * (i & 1)
            if i + 1 < steps:
                fetch(sh, f, 8 - o, weights, values, i + 1)
            if whole or i < left * each:
                if i % each == 0:
                    t = i // each
                    for n in range(2):
                        acc[4 * n] *= fades[2 * t]
                        acc[4 * n + 1] *= fades[2 * t]
                        acc[4 * n + 2] *= fades[2 * t + 1]
                        acc[4 * n + 3] *= fades[2 * t + 1]
                acc[0], acc[1], acc[2], acc[3] = ptx.mma_f16(
                    f[o], f[o + 1], f[o + 2], f[o + 3], f[o + 4], f[o + 5], acc[0], acc[1], acc[2], acc[3]
                )
                acc[4], acc[5], acc[6], acc[7] = ptx.mma_f16(
                    f[o], f[o + 1], f[o + 2], f[o + 3], f[o + 6], f[o + 7], acc[4], acc[5], acc[6], acc[7]
                )

    return add_up


@device
def put_result(out, at, a, b, c, d, share):
    ptx.stf2(out, at, a * share, b * share)
    ptx.stf2(out, int32(at + 8), c * share, d * share)


def make(slots):
    pitch, stages = TURN * slots // 2 + 4, 2 * PAIRS * (TURN * slots // 2 + 4)
    score_count, factor_count, part_count = slots // 4, 2 * TURN * PAIRS, 2 * MAKERS
    bring, add_whole, add_rest = make_bring(slots), make_add_up(slots, True), make_add_up(slots, False)
    load, weigh = make_weights(slots)

    @kernel("FFFFIIIILiiiiiiiii", threads=MAKERS + 64, blocks=2, name=f"attention_sums_{slots}", since=80)
    def attention_sums(
        scores, tops, out, sinks, cells, positions, shared, branches, pages, tiles_of_place, dim, held, heads, kv_heads, layer_at,
        window, few, flags,
    ):  # fmt: skip
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=16)
        factors, parts = cuda.shared.array(factor_count, float32), cuda.shared.array(part_count, float32)
        last_tops, totals = cuda.shared.array(PAIRS, float32), cuda.shared.array(PAIRS, float32)
        tid = int32(cuda.threadIdx.x)
        lane = int32(tid & 31)
        kv_head, fragment = int32(cuda.blockIdx.y), int32(cuda.blockIdx.z)
        group, rows = over(heads, kv_heads), rows_of(cells, flags, few)
        pairs = int32(rows * group - PAIRS * fragment)
        if pairs <= 0:
            ptx.pdl_wait()
            return
        first, last = tiles_seen(rows, int32(slots), window, cells, positions, shared, branches)
        tiles = int32(last + 1 - first)
        old = int32(ptx.ldg32(cells, 1))
        end = int32(old + int32(ptx.ldg32(cells, 0)))
        making, column = tid < MAKERS, int32(WIDTH * int32(cuda.blockIdx.x))
        width = int32(min(int32(WIDTH), int32(dim - column)))
        value_at = int64(layer_at) * 512 + int64(kv_heads + kv_head) * 512 * dim + int64(2 * column)
        early = int32((first + TURN * (STAGES - 1)) * slots) <= old  # values of earlier batches are there whatever else is not
        if not early:
            ptx.pdl_wait()
        if making:
            for i in range(STAGES - 1):
                bring(sh, int32(stages), int32(i), pages, value_at, dim, width, first, tiles, end, tid)
                ptx.cp_async_commit()
        if early:
            if making:
                stop = int32(min(old, int32((last + 1) * slots)))
                prefetch(pages, value_at, dim, int32((first + TURN * (STAGES - 1)) * slots), stop, tid)
            ptx.pdl_wait()
        place = int32((fragment * kv_heads + kv_head) * tiles_of_place)
        tile, pair, lane4 = int32(tid >> 6), int32((tid >> 2) & 15), int32(tid & 3)
        live = making and pair < pairs
        x, peaks = cuda.local.array(score_count, float32), cuda.local.array(TURN, float32)
        other_x, other_peaks = cuda.local.array(score_count, float32), cuda.local.array(TURN, float32)
        acc = cuda.local.array(8, float32)
        for i in range(8):
            acc[i] = float32(0)
        top, total = float32(FLOOR), float32(0)
        turns = int32((tiles + TURN - 1) >> 2)
        if live:  # the others' weights may be anything
            load(x, peaks, scores, tops, place, held, int32(0), tiles, tile, pair, lane4)
            load(other_x, other_peaks, scores, tops, place, held, int32(1), tiles, tile, pair, lane4)
            top = weigh(sh, int32(pitch), factors, parts, x, peaks, top, int32(0), tile, pair, lane4)
            load(x, peaks, scores, tops, place, held, int32(2), tiles, tile, pair, lane4)
        if making:
            ptx.cp_async_wait(AHEAD)
        cuda.syncthreads()
        turn, mine = int32(0), int32(stages + 8 * ((tid >> 5) & 1))  # of the warps that add up: 16 dims each
        while turn < turns:
            here = int32(turn & 1)
            if making:
                bring(sh, int32(stages), int32(turn + STAGES - 1), pages, value_at, dim, width, first, tiles, end, tid)
                ptx.cp_async_commit()
                if live and tile == 0:
                    for t in range(TURN):
                        at = int32((here * TURN + t) * PAIRS + pair)
                        total = ptx.fmaf(total, factors[uint32(at)], parts[uint32(4 * at + lane4)])
                if live and here == 0:  # beyond the last turn there is nothing, which changes nothing
                    top = weigh(sh, int32(pitch), factors, parts, other_x, other_peaks, top, int32(1), tile, pair, lane4)
                    load(other_x, other_peaks, scores, tops, place, held, int32(turn + 3), tiles, tile, pair, lane4)
                elif live:
                    top = weigh(sh, int32(pitch), factors, parts, x, peaks, top, int32(0), tile, pair, lane4)
                    load(x, peaks, scores, tops, place, held, int32(turn + 3), tiles, tile, pair, lane4)
                ptx.cp_async_wait(AHEAD)
            else:
                stage, left = int32(mine + stage_of(turn) * (TURN * slots * VALUES)), int32(tiles - TURN * turn)
                if left >= TURN:
                    add_whole(sh, int32(pitch), stage, factors, acc, here, left, lane)
                else:
                    add_rest(sh, int32(pitch), stage, factors, acc, here, left, lane)
            cuda.syncthreads()
            turn = int32(turn + 1)
        if tid < 64:
            total = sum_of_row(total)
            if lane4 == 0:
                totals[uint32(pair)] = total
                last_tops[uint32(pair)] = top
        cuda.syncthreads()
        column = int32(column + 16 * ((tid >> 5) & 1) + 2 * (lane & 3))
        if not making and column < dim:
            for i in range(2):
                pair = int32((lane >> 2) + 8 * i)
                if pair < pairs:
                    row = row_of(int32(PAIRS * fragment + pair), group)
                    head = int32(kv_head * group + PAIRS * fragment + pair - row * group)
                    share = share_beside(last_tops[uint32(pair)], totals[uint32(pair)], sink_of(sinks, head, flags))
                    at = int32((row * heads + head) * dim + column)
                    put_result(out, at, acc[2 * i], acc[2 * i + 1], acc[4 + 2 * i], acc[5 + 2 * i], share)

    return attention_sums


for slots in (64, 32):
    make(slots)
