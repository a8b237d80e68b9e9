"""A pass of rows of the persistent decode kernel: streamed weights times the vector in shared memory, and the sums of it."""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device
from .persistent_dots import eight_bits, four_bits, six_bits
from .persistent_phases import ENTRY, entry64, matrices_of, rows_in_matrix, slices_of, stride_of
from .persistent_stream import advance, await_barrier

FOUR, SIX, EIGHT = 12, 14, 8  # ggml ids of the formats there are products for


@device
def share_of(work, slices, dealt, turned, warp):
    """A warp's part of a stage's work (pairs of rows, slice by slice): (first, end, step). With one slice the pairs are dealt out
    in turn, over stages; otherwise a warp has neighbours, most of the same slice, and the remainder goes to others every time."""
    first = int32((warp - dealt) & 7)
    end = int32(work)
    step = int32(8)
    if slices > 1:
        i = int32(warp ^ turned)
        first = int32((work * i) >> 3)
        end = int32((work * i + work) >> 3)
        step = int32(1)
    return first, end, step


@device
def note(clocks, place, last, tid):
    """Add the cycles since `last` to a counter; returns the time now."""
    now = ptx.clock32()
    if tid == 0:
        ptx.sts32(clocks, place, uint32(ptx.lds32(clocks, place) + uint32(now - last)))
    return now


@device
def multiply_stage(
    sh, partial, code, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place, stride, lane
):
    """The warp's part of the rows in a stage, which begin at `base`."""
    if code == FOUR:
        four_bits(sh, partial, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place, stride, lane)
    elif code == SIX:
        six_bits(sh, partial, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place, stride, lane)
    else:
        eight_bits(sh, partial, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place, stride, lane)


@device
def multiply(
    sh, partial, full, empty, ring, state, stages, stage_bytes, tab, layer, phase, first, last, columns, query_rows, kv_rows,
    vector, room, into, warp, lane, clocks, timed,
):  # fmt: skip
    """Rows first...last of a phase: the sum of each row's slice into partial[into + stride * slice + row]. timed: count the
    cycles that the first warp waits for weights."""
    dealt = int32(0)
    turned = int32(0)
    units = int32((columns + 255) >> 8)
    slices = slices_of(columns)
    stride = stride_of(columns)
    matrix, matrices = matrices_of(phase)
    i = int32(0)
    while i < matrices:
        row, row_end, place = rows_in_matrix(phase, i, first, last, query_rows, kv_rows)
        if row < row_end:
            place = int32(place + into)
            at = int32(tab + (layer * ENTRY + matrix + i) * 8)
            shape = entry64(sh, int32(at + 64))
            offset = int32(ptx.lds32(sh, at) & uint32(15))
            code = int32(shape & 255)
            taken = int32((shape >> 8) & 65535)
            row_bytes = int32((int32((shape >> 32) & 65535) * columns) >> 8)
            while row < row_end:
                count = int32(min(taken, int32(row_end - row)))
                base = int32(ring[0] * stage_bytes + ((offset + row * row_bytes) & 15))
                pairs = int32((count + 1) >> 1)
                work, end, step = share_of(int32(pairs * slices), slices, dealt, turned, warp)
                if timed > 0:
                    began = ptx.clock32()
                await_barrier(full, int32(ring[0]), int32(ring[1]), state)
                if timed > 0:
                    note(clocks, 11, began, int32(warp | lane))
                multiply_stage(
                    sh, partial, code, base, row_bytes, count, pairs, units, vector, room, columns, work, end, step, place,
                    stride, lane,
                )  # fmt: skip
                cuda.syncwarp()
                if lane == 0:
                    ptx.mbar_arrive(empty, int32(2 * ring[0]))
                advance(ring, stages)
                dealt = int32(dealt + pairs)
                turned = int32(turned ^ 7)
                row = int32(row + taken)
                place = int32(place + taken)
        i = int32(i + 1)


@device
def add_up(partial, at, slices, stride):
    """The sum of a row's slices."""
    value = float32(0)
    for k in range(0, 16, 4):
        if k < slices:
            a = partial[uint32(at + k * stride)]
            b = partial[uint32(at + min(int32(k + 1), int32(slices - 1)) * stride)]
            c = partial[uint32(at + min(int32(k + 2), int32(slices - 1)) * stride)]
            d = partial[uint32(at + min(int32(k + 3), int32(slices - 1)) * stride)]
            if k + 1 >= slices:
                b = float32(0)
            if k + 2 >= slices:
                c = float32(0)
            if k + 3 >= slices:
                d = float32(0)
            value += float32((a + b) + (c + d))
    return value
