"""linear_stream_<TYPE>: y = W x for one row of activations, by integer products on tensor cores, the blocks of up to three
matrices of that type with the same input coming through rings in shared memory.

x: float32[columns]; when `normed` it is first multiplied by norm[columns] and divided by its root mean square (eps). Each
matrix is (weights, ggml type, rows, bias, biased, out); unused ones have 0 rows. columns: a multiple of the type's blocks and
of 32. mode 0: out = y + bias; 1: out += scale * (y + bias), out not being x; 2: out0 = act(y0) * y1 of two matrices of equal
rows (act 0 silu, 1 gelu). Its flags LATE and BESIDE are those of linear_dot.

A tile is 16 rows. A unit is warps / splits tiles, each shared by `splits` warps (1, 2, 4 .. warps; less than `warps` in mode 2,
whose tiles are gate and up in turn); a warp takes `runs` (1, 2, 4) runs of a row at once, splits times as far from turn
to turn. tall: units whose rows come together, min(2 * splits, KEPT) at most; 1 where a row takes several turns. ways: places in
shared memory for a word of tables, at most.
Block b does the units b, b + grid, ..: the grid may be anything up to ceil(tiles * splits / warps), tiles being the sum of
ceil(rows / 16). Dynamic shared memory: Stream.shared_bytes.

What a unit takes in one turn is copied by all threads into one of `stages` stages of a ring; the first are asked for before the
kernel waits for its input. B holds the activations of group t in columns 2t (high bytes) and 2t + 1 (low ones) of
lane t's part of a product's depth, and zeros elsewhere: so lane t gets the sum of its own group, whose scale it has.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from ...quant.stream import PARTS, ROWS, WARPS
from . import ptx, streamed
from .export import device, kernel
from .row_tiles import activated, locate, pick
from .stream_bits import bit_runner
from .stream_runs import float_runner, runner
from .stream_tables import tables_of
from .streams import activations_at, bound, preparer, round_of

LATE, BESIDE = 4, 8  # flags of mode
KEPT = PARTS // (ROWS * WARPS)  # units whose sums are kept before they are finished, at most
FORMATS = bound()


def asker(format):
    """Device function: copies what a thread does of a stage: 2 * splits threads to a row."""
    block, run_bytes = format.block, format.record.nbytes
    shift, nbytes = block.elements.bit_length() - 1, block.nbytes

    @device
    def ask(sh, to, pitch, first, tiles, turn, runs, splits, log_splits, columns, mode, w0, rows0, w1, rows1, w2, rows2):
        """first: tile of the unit; to: its place. The last word of a row's place says where in the first 16 bytes it begins."""
        line = int32(cuda.threadIdx.x >> (log_splits + 1))
        piece, size_of_row = int32(cuda.threadIdx.x & (2 * splits - 1)), int32(splits * runs * run_bytes)
        index = int32(min(int32(first + (line >> 4)), int32(tiles - 1)))
        segment, tile = locate(index, mode, int32((rows0 + 15) >> 4), int32((rows1 + 15) >> 4))
        row = int32(min(int32(ROWS * tile + (line & 15)), int32(pick(segment, rows0, rows1, rows2) - 1)))
        stride = int32(int32(columns >> shift) * nbytes)
        start = ptx.address(pick(segment, w0, w1, w2), int64(row) * stride + int64(turn * size_of_row))
        left = int32(min(int32(stride - turn * size_of_row), size_of_row))
        count = int32((int32(start & 15) + left + 15) >> 4)
        start, low, to = start & -16, uint32(start & 15), int32(to + line * pitch)
        if piece == 0:
            ptx.sts32(sh, int32(to + pitch - 1), low)
        while piece < count:
            ptx.cp_async16(sh, int32(to + 4 * piece), start, int64(16 * piece))
            piece = int32(piece + 2 * splits)

    return ask


def summer(warps):
    """Device functions: the sum of the squares that the warps left; the sum, from word `at` of shared memory on, of the warps that
    share a tile, in their order."""

    @device
    def squares_of(squares):
        found = float32(0)
        for k in range(warps):
            found += squares[uint32(k)]
        return found

    @device
    def total(sh, at, splits):
        value = ptx.ldsf(sh, at)
        k = int32(1)
        while k < splits:
            value += ptx.ldsf(sh, int32(at + 16 * k))
            k = int32(k + 1)
        return value

    return squares_of, total


@device
def early(index, inside, mode, rows0, rows1, rows2, bias0, bias1, bias2, biased0, biased1, biased2, out0, out1, out2):
    """What lies in `out` (mode 1) or the bias (mode 0) of a row of a tile, asked for early: it takes a while."""
    value = float32(0)
    if mode == 1 or (mode == 0 and biased0 + biased1 + biased2):
        segment, tile = locate(index, mode, int32((rows0 + 15) >> 4), int32((rows1 + 15) >> 4))
        row = int32(ROWS * tile + inside)
        if row < pick(segment, rows0, rows1, rows2):
            if mode == 1:
                value = ptx.ldf(pick(segment, out0, out1, out2), row)
            elif pick(segment, biased0, biased1, biased2):
                value = ptx.ldf(pick(segment, bias0, bias1, bias2), row)
    return value


@device
def put(value, before, index, inside, mode, scale, rows0, rows1, rows2, bias0, bias1, bias2, biased0, biased1, biased2, o0, o1, o2):
    """Modes 0 and 1 of a row's value."""
    segment, tile = locate(index, mode, int32((rows0 + 15) >> 4), int32((rows1 + 15) >> 4))
    row = int32(ROWS * tile + inside)
    if row < pick(segment, rows0, rows1, rows2):
        if mode == 1:
            if pick(segment, biased0, biased1, biased2):
                value += pick(segment, bias0, bias1, bias2)[row]
            value = ptx.fmaf(scale, value, before)
        else:
            value += before
        pick(segment, o0, o1, o2)[row] = value


@device
def arrived(stages):
    """Waits for the oldest of the stages that have been asked for."""
    if stages <= 2:
        ptx.cp_async_wait(0)
    elif stages == 3:
        ptx.cp_async_wait(1)
    else:
        ptx.cp_async_wait(2)
    cuda.syncthreads()


def finisher(warps):
    """Device function: results of the units whose sums lie from word `parts` on, one to a thread."""
    squares_of, total = summer(warps)

    @device
    def finish(
        sh, parts, squares, before, unit, units, shift, splits, log_splits, normed, eps, columns, mode, act, scale, rows0, rows1,
        rows2, bias0, bias1, bias2, biased0, biased1, biased2, out0, out1, out2,
    ):  # fmt: skip
        tid, inside = int32(cuda.threadIdx.x), int32(cuda.threadIdx.x & 15)
        which, tile = int32(tid >> (4 + shift)), int32((tid >> 4) & int32((1 << shift) - 1))
        factor = float32(1)
        if normed:
            factor = ptx.rsqrt(squares_of(squares) / float32(columns) + eps)
        index = int32(((unit + which * cuda.gridDim.x) << shift) + tile)
        at = int32(parts + 16 * (warps * which + (tile << log_splits)) + inside)
        value, biases = float32(0), int32(0)
        if which < units:
            value = float32(factor * total(sh, at, splits))
        if mode == 2:
            row = int32(16 * (index >> 1) + inside)
            biases = pick(tile & 1, biased0, biased1, biases)
            if biases and which < units and row < rows0:
                value += pick(tile & 1, bias0, bias1, bias1)[row]
            up = ptx.shfl_xor(value, int32(16))
            if which < units and tile & 1 == 0 and row < rows0:
                out0[row] = float32(activated(act, value) * up)
        elif which < units:
            put(
                value, before, index, inside, mode, scale, rows0, rows1, rows2, bias0, bias1, bias2, biased0, biased1, biased2,
                out0, out1, out2,
            )  # fmt: skip

    return finish


@device
def place_of(lane):
    """Bytes from a run's first activations to a lane's; others than these 8 lanes need none (stream_runs.py)."""
    return int32(32 * (lane >> 3) + 16 * ((lane >> 2) & 1))


@device
def bit_place_of(lane):
    return int32(64 * (lane & 3) + 8 * (lane >> 2))


@device
def float_place_of(lane):
    return int32(16 * (lane & 3))


def _kernel(format):
    record = format.record
    warps, threads, log_warps, first_of = WARPS, 32 * WARPS, WARPS.bit_length() - 1, activations_at(record)
    ask, prepare, finish = asker(format), preparer(record, threads), finisher(warps)
    stage, place_tables = tables_of(format, threads)
    make_run, place = runner, place_of
    if record.bits:
        make_run, place = bit_runner, bit_place_of
    elif record.floats:
        make_run, place = float_runner, float_place_of
    run = make_run(format)
    nbytes, span, meta_words = record.nbytes, record.run, record.meta
    divides = not record.rounded  # by the root mean square, at the end
    words, span_shift = 2 * (len(record.tables) + record.head + record.words), record.run.bit_length() - 1
    lane_meta = 0 if record.floats else 4 * record.meta

    def linear_stream(
        x, norm, normed, eps, columns, w0, type0, rows0, bias0, biased0, out0, w1, type1, rows1, bias1, biased1, out1,
        w2, type2, rows2, bias2, biased2, out2, how, act, scale, splits, runs, stages, ways, tall,
    ):  # fmt: skip
        mode = int32(how & 3)
        if how & LATE == 0:
            ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=128)
        squares = cuda.shared.array(warps, float32, alignment=16)
        raw = cuda.local.array(words, uint32)
        tid = int32(cuda.threadIdx.x)
        lane, warp = int32(tid & 31), int32(tid >> 5)
        g, t = int32(lane >> 2), int32(lane & 3)
        tiles = int32(int32((rows0 + 15) >> 4) + int32((rows1 + 15) >> 4) + int32((rows2 + 15) >> 4))
        padded = int32((columns + span - 1) & -span)
        log_splits, log_runs = int32(ptx.popc(uint32(splits - 1))), int32(ptx.popc(uint32(runs - 1)))
        shift, share = int32(log_warps - log_splits), int32(warp & (splits - 1))
        goal = int32(int32(tiles + int32(1 << shift) - 1) >> shift)
        turn_columns = int32(splits * runs * span)
        turns = int32(int32(padded + turn_columns - 1) >> (log_splits + log_runs + span_shift))
        pitch = int32(4 * (((splits * runs * nbytes + 46) >> 4) | 1))
        unit_words, most_kept = int32((pitch << 4) << shift), int32(min(2 * splits, KEPT))
        stage_words = int32(tall * unit_words)
        parts = int32(first_of(padded) + (padded >> 1))
        ring = int32(parts + max(int32(PARTS), int32(min(padded, round_of(padded)) >> 1)))
        tables = int32(ring + stages * stage_words)
        coming, coming_turn, asked, free, slot = int32(cuda.blockIdx.x), int32(0), int32(0), int32(0), int32(0)  # asked for next
        unit, turn, kept = int32(cuda.blockIdx.x), int32(0), int32(0)
        base = ptx.smem_addr(sh, int32(0))
        x_first, meta = int32(base + 4 * first_of(padded) + place(lane)), int32(base + lane_meta * t)
        place_tables(raw, base, tables, ways, lane)
        y, y8, before = float32(0), float32(0), float32(0)
        while unit < goal:
            if asked >= stages:
                if asked == stages:
                    stage(sh, tables, ways, tid)
                    if how & BESIDE:
                        ptx.pdl_beside()
                    else:
                        ptx.pdl_wait()
                    if how & LATE:
                        ptx.pdl_launch()
                    prepare(x, norm, normed, eps, columns, sh, squares)
                arrived(stages)
            if asked != stages:  # else all stages are taken
                number, to = coming, int32(ring + free * stage_words)
                last = int32(min(goal, int32(coming + tall * cuda.gridDim.x)))
                while number < last:
                    ask(
                        sh, to, pitch, int32(number << shift), tiles, coming_turn, runs, splits, log_splits, columns, mode, w0,
                        rows0, w1, rows1, w2, rows2,
                    )  # fmt: skip
                    number, to = int32(number + cuda.gridDim.x), int32(to + unit_words)
                ptx.cp_async_commit()
                coming_turn = int32(coming_turn + 1)
                free = int32(free + 1)
                if free == stages:
                    free = int32(0)
                if coming_turn == turns:
                    coming, coming_turn = int32(coming + tall * cuda.gridDim.x), int32(0)
                if stages == 1 and asked > 1:
                    ptx.cp_async_wait(0)
                    cuda.syncthreads()
            asked = int32(asked + 1)
            if asked <= stages:
                continue
            if turn == 0 and kept == 0 and (mode == 1 or biased0 + biased1 + biased2):
                which = int32(tid >> (4 + shift))
                index = int32(((unit + which * cuda.gridDim.x) << shift) + ((tid >> 4) & int32((1 << shift) - 1)))
                if which < most_kept and unit + which * cuda.gridDim.x < goal:
                    before = early(
                        index, int32(tid & 15), mode, rows0, rows1, rows2, bias0, bias1, bias2, biased0, biased1, biased2,
                        out0, out1, out2,
                    )  # fmt: skip
            here = int32(base + 4 * (ring + slot * stage_words + (16 * (warp >> log_splits) + g) * pitch))
            last = int32(min(goal, int32(unit + tall * cuda.gridDim.x)))
            number, end_of = unit, int32(parts + 16 * (warps * kept + warp) + g + 8 * t)
            from_column, skipped = int32(turn * turn_columns + share * runs * span), int32(share * runs * nbytes)
            end, x_from = int32(min(int32(from_column + runs * span), padded)), int32(x_first + 2 * from_column)
            meta_from = int32(meta + 4 * meta_words * (from_column >> 5))
            turn = int32(turn + 1)
            while number < last:
                at = int32(here + skipped + int32(streamed.at32(int32(here + 4 * pitch - 4))))
                at8 = int32(here + 32 * pitch + skipped + int32(streamed.at32(int32(here + 36 * pitch - 4))))
                column, x_at, group = from_column, x_from, meta_from
                while column < end:
                    y, y8 = run(y, y8, raw, at, at8, t, x_at, group, int32(int32(columns - column) >> 5))
                    at, at8, x_at, column = int32(at + nbytes), int32(at8 + nbytes), int32(x_at + 2 * span), int32(column + span)
                    group = int32(group + meta_words * (span >> 3))
                cuda.syncwarp()  # here lanes meet: without it ptxas takes a warp for divided in all that follows
                if turn == turns:
                    y += ptx.shfl_xor(y, int32(1))
                    y8 += ptx.shfl_xor(y8, int32(1))
                    y += ptx.shfl_xor(y, int32(2))
                    y8 += ptx.shfl_xor(y8, int32(2))
                    if t == 1:
                        y = y8
                    if t < 2:
                        ptx.stsf(sh, end_of, y)
                    y, y8, kept, end_of = float32(0), float32(0), int32(kept + 1), int32(end_of + 16 * warps)
                number, here = int32(number + cuda.gridDim.x), int32(here + 4 * unit_words)
            if turn == turns:
                turn, unit = int32(0), number
                if kept + tall > most_kept or unit >= goal:
                    cuda.syncthreads()
                    finish(
                        sh, parts, squares, before, int32(unit - kept * cuda.gridDim.x), kept, shift, splits, log_splits,
                        int32(normed * divides), eps, columns, mode, act, scale, rows0, rows1, rows2, bias0, bias1, bias2, biased0,
                        biased1, biased2, out0, out1, out2,
                    )  # fmt: skip
                    cuda.syncwarp()
                    kept = int32(0)
            slot = int32(slot + 1)
            if slot == stages:
                slot = int32(0)
        if how & BESIDE:
            ptx.pdl_wait()

    return linear_stream


SIGNATURE = "FFifi" + "BiiFiF" * 3 + "iifiiiii"
for _format in FORMATS.values():
    kernel(SIGNATURE, threads=32 * WARPS, blocks=2, name=f"linear_stream_{_format.block.name}")(_kernel(_format))
