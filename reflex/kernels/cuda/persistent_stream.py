"""Weights of the persistent decode kernel: one warp copies this block's rows, in the order of use, through a ring of stages.

It never looks at activations, so it runs ahead of the arithmetic and over the exchanges between blocks. A stage holds as many
whole rows as fit. One bulk copy fetches them where rows are short: copies of about 1 KB were limited by their number (some 80
cycles each). Long rows are copied one by one, so that they can lie where their readers do not meet in the same banks. Copies
move 16 aligned bytes at least, but rows of some formats start anywhere: the aligned bytes around them are copied, and readers
add the `address & 15`.
"""

from numba import cuda
from numba.types import int32, int64, uint32

from . import ptx
from .export import device
from .persistent_phases import LAST_OF_PHASE, LINE, LISTED, SEGMENT, columns_of, entry64, phases_of, row_bytes_of

FEEDERS = 4  # warps that ask for weights
LIMIT = 20000  # polls before a thread gives up, some 15 ms: nothing can hang


@device
def await_barrier(barriers, stage, parity, state):
    """Wait for a phase of a stage's barrier; state: [polls allowed, whether any wait failed, whether to stop]."""
    polls = int32(0)
    while ptx.mbar_try_wait(barriers, int32(2 * stage), uint32(parity)) == 0 and polls < state[0]:
        polls = int32(polls + 1)
    if polls >= state[0]:
        state[0] = int32(1)
        state[1] = int32(1)


@device
def await_empty(empty, halt, ring, state):
    """Wait until a stage has been read; also ends when the text has: what would be copied ahead is not wanted."""
    polls = int32(0)
    while ptx.mbar_try_wait(empty, int32(2 * ring[0]), uint32(ring[1] ^ 1)) == 0 and polls < state[0]:
        polls = int32(polls + 1)
        if ptx.lds32(halt, 0) != 0:
            polls = int32(LIMIT)
            state[2] = int32(1)
    if polls >= state[0] and state[2] == 0:
        state[0] = int32(1)
        state[1] = int32(1)
    cuda.syncwarp()
    state[2] = int32(ptx.redux_max(uint32(state[2])))


@device
def start_ring(ring, state):
    ring[0] = int32(0)
    ring[1] = int32(0)
    state[0] = int32(LIMIT)
    state[1] = int32(0)
    state[2] = int32(0)


@device
def advance(ring, stages):
    """ring: [stage, phase parity]."""
    following = int32(ring[0] + 1)
    if following == stages:
        following = int32(0)
        ring[1] = int32(ring[1] ^ 1)
    ring[0] = following


@device
def stream_segment(sh, full, empty, halt, ring, state, stages, stage_bytes, line, a, b, d, columns, feeder, lane):
    """Copy the rows of a segment into the next stage. a, b, d: its first, second and last word."""
    count = int32((a >> uint32(8)) & 255)
    if count > 0:
        await_empty(empty, halt, ring, state)
        if state[2] == 0:
            if state[1] == 0:
                piece = int32(d & 65535)
                pitch = int32(d >> uint32(16))
                row_bytes = row_bytes_of(sh, line, a, columns)
                source = int64(entry64(sh, int32(line + int32((a >> uint32(16)) & 15) * 8)) + int64(b))
                stage = int32(ring[0])
                to = int32(stage * stage_bytes)
                if pitch == row_bytes:
                    if lane == 0 and feeder == 0:
                        shift = int32(source & 15)
                        size = uint32((shift + count * row_bytes + 15) & -16)
                        ptx.mbar_expect(full, int32(2 * stage), size)
                        ptx.bulk_g2s(sh, to, int64(source - shift), int32(0), full, int32(2 * stage), size)
                else:
                    if lane == 0:
                        if feeder == 0:
                            total = int32(count * ((int32(source & 15) + piece + 15) & -16))
                            if row_bytes & 15:
                                total = int32(0)
                                row = int32(0)
                                while row < count:
                                    total = int32(total + ((int32((source + row * row_bytes) & 15) + piece + 15) & -16))
                                    row = int32(row + 1)
                            ptx.mbar_expect(full, int32(2 * stage), uint32(total))
                        row = int32(feeder)
                        source = int64(source + int64(feeder * row_bytes))
                        to = int32(to + feeder * pitch)
                        while row < count:
                            shift = int32(source & 15)
                            size = uint32((shift + piece + 15) & -16)
                            ptx.bulk_g2s(sh, to, int64(source - shift), int32(0), full, int32(2 * stage), size)
                            source = int64(source + int64(row_bytes * FEEDERS))
                            to = int32(to + pitch * FEEDERS)
                            row = int32(row + FEEDERS)
            advance(ring, stages)


@device
def drain(full, ring, state, stages):
    """Wait for every copy under way: none may land after the block has ended."""
    state[0] = int32(LIMIT)
    stage = int32(0)
    while stage < stages:
        parity = int32(ring[1])
        if stage >= ring[0]:
            parity = int32(parity ^ 1)
        await_barrier(full, stage, parity, state)
        stage = int32(stage + 1)


@device
def stream(
    sh, full, empty, halt, ring, state, stages, stage_bytes, tab, lists, layers, tokens, width, query_rows, hidden, feeder, lane
):
    """All weights of this block, for every token."""
    ahead = int32(0)
    while ahead < tokens and state[2] == 0:
        layer = int32(0)
        while layer <= layers and state[2] == 0:
            line = int32(tab + layer * LINE)
            at = int32(lists + int32(ptx.lds32(sh, int32(line + LISTED * 8))) * SEGMENT)
            phase, past = phases_of(layer, layers)
            while phase < past and state[2] == 0:
                columns = columns_of(phase, width, query_rows, hidden)
                a, b, _, d = ptx.lds128(sh, at)
                stream_segment(sh, full, empty, halt, ring, state, stages, stage_bytes, line, a, b, d, columns, feeder, lane)
                at = int32(at + SEGMENT)
                if (a & uint32(LAST_OF_PHASE)) != 0:
                    phase = int32(phase + 1)
            layer = int32(layer + 1)
        ahead = int32(ahead + 1)
    drain(full, ring, state, stages)
