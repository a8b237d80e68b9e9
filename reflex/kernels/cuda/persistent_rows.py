"""A phase's rows of the persistent decode kernel: streamed weights times the vector in shared memory, and the sums of it."""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device
from .persistent_dots import SUMS, WARPS, eight_bits, four_bits, six_bits
from .persistent_phases import row_bytes_of
from .persistent_stream import advance, await_barrier

FOUR, SIX, EIGHT = 12, 14, 8  # ggml ids of the formats there are products for


@device
def note(clocks, place, last, tid):
    """Add the cycles since `last` to a counter; returns the time now."""
    now = ptx.clock32()
    if tid == 0:
        ptx.sts32(clocks, place, uint32(ptx.lds32(clocks, place) + uint32(now - last)))
    return now


@device
def multiply_stage(sh, partial, code, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane):
    """The warp's part of the rows in a stage, which begin at `base`."""
    if code == FOUR:
        four_bits(sh, partial, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane)
    elif code == SIX:
        six_bits(sh, partial, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane)
    else:
        eight_bits(sh, partial, base, begin, along, pitch, count, units, skipped, vector, room, columns, place, warp, lane)


@device
def multiply(
    sh, partial, full, empty, ring, state, stages, stage_bytes, line, a, b, c, d, columns, vector, room, into, team, turned, lane,
    clocks, timed,
):  # fmt: skip
    """The segment (a, b, c, d): each warp's part of each row's sum into partial[into + SUMS * warp + row], where 0 is otherwise.
    team: whether the warp's team is the one that takes it; turned: which part the warp takes. timed: count the cycles that the
    first warp waits for weights."""
    count = int32((a >> uint32(8)) & 255)
    if count > 0 and team > 0:
        pitch = int32(d >> uint32(16))
        along = row_bytes_of(sh, line, a, columns)
        if pitch == along:  # copied together
            along = int32(0)
        begin = int32(ptx.lds32(sh, int32(line + int32((a >> uint32(16)) & 15) * 8)) + b)
        if timed > 0:
            began = ptx.clock32()
        await_barrier(full, int32(ring[0]), int32(ring[1]), state)
        if timed > 0:
            began = note(clocks, 11, began, int32(turned | lane))
        multiply_stage(
            sh, partial, int32(a & 255), int32(ring[0] * stage_bytes), begin, along, pitch, count, int32(c >> uint32(24)),
            int32((c >> uint32(16)) & 255), vector, room, columns, int32(into + int32(c & 65535)), turned, lane,
        )  # fmt: skip
        if timed > 0:
            note(clocks, 13, began, int32(turned | lane))
        cuda.syncwarp()
        if lane == 0:
            ptx.mbar_arrive(empty, int32(2 * ring[0]))
    if count > 0:
        advance(ring, stages)


@device
def add_up(partial, at):
    """The sum of a row, of which every warp has a part; leaves zeros."""
    value = float32(0)
    for k in range(0, WARPS, 4):
        a = partial[uint32(at + k * SUMS)]
        b = partial[uint32(at + (k + 1) * SUMS)]
        c = partial[uint32(at + (k + 2) * SUMS)]
        d = partial[uint32(at + (k + 3) * SUMS)]
        value += float32((a + b) + (c + d))
    for k in range(WARPS):
        partial[uint32(at + k * SUMS)] = float32(0)
    return value
