"""Weights of the persistent decode kernel: one warp copies this block's rows, in the order of use, through a ring of stages.

It never looks at activations, so it runs ahead of the arithmetic and over the exchanges between blocks. A stage holds as many
whole rows as fit, which one bulk copy fetches: copies of about 1 KB, one per row, were limited by their number (some 80 cycles
each). Copies move 16 aligned bytes at least, but rows of some formats start anywhere: the aligned bytes around the rows are
copied, and readers add the first row's `address & 15`.
"""

from numba import cuda
from numba.types import int32, int64, uint32

from . import ptx
from .export import device
from .persistent_phases import (
    ENTRY,
    columns_of,
    entry64,
    first_of_share,
    matrices_of,
    phases_of,
    rows_in_matrix,
    rows_in_pass,
    rows_of,
)  # fmt: skip

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
def stream_rows(sh, full, empty, halt, ring, state, stages, stage_bytes, address, shape, columns, first, end, lane):
    """Copy rows first...end of a matrix. shape: see persistent.py, 'Table'."""
    taken = int32((shape >> 8) & 65535)
    row_bytes = int32((int32((shape >> 32) & 65535) * columns) >> 8)
    row = int32(first)
    while row < end:
        count = int32(min(taken, int32(end - row)))
        await_empty(empty, halt, ring, state)
        if state[2] == 0:
            if lane == 0 and state[1] == 0:
                stage = int32(ring[0])
                source = int64(address + int64(row) * int64(row_bytes))
                shift = int32(source & 15)
                size = uint32((shift + count * row_bytes + 15) & -16)
                ptx.mbar_expect(full, int32(2 * stage), size)
                ptx.bulk_g2s(sh, int32(stage * stage_bytes), int64(source - shift), int32(0), full, int32(2 * stage), size)
            advance(ring, stages)
        row = int32(row + taken)


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
    sh, full, empty, halt, ring, state, stages, stage_bytes, tab, layers, width, query_rows, kv_rows, hidden, vocabulary, tokens,
    lane,
):  # fmt: skip
    """All weights of this block, for every token."""
    block = int32(cuda.blockIdx.x)
    blocks = int32(cuda.gridDim.x)
    ahead = int32(0)
    while ahead < tokens and state[2] == 0:
        layer = int32(0)
        while layer <= layers:
            phase, past = phases_of(layer, layers)
            while phase < past:
                columns = columns_of(phase, width, query_rows, hidden)
                total = rows_of(phase, width, query_rows, kv_rows, hidden, vocabulary)
                first = first_of_share(total, block, blocks)
                end = first_of_share(total, int32(block + 1), blocks)
                while first < end and state[2] == 0:
                    last = int32(min(int32(first + rows_in_pass(phase, columns)), end))
                    matrix, count = matrices_of(phase)
                    i = int32(0)
                    while i < count:
                        row, row_end, _ = rows_in_matrix(phase, i, first, last, query_rows, kv_rows)
                        at = int32(tab + (layer * ENTRY + matrix + i) * 8)
                        if row < row_end:
                            address = entry64(sh, at)
                            shape = entry64(sh, int32(at + 64))
                            stream_rows(
                                sh, full, empty, halt, ring, state, stages, stage_bytes, address, shape, columns, row, row_end, lane
                            )
                        i = int32(i + 1)
                    first = last
                phase = int32(phase + 1)
            layer = int32(layer + 1)
        ahead = int32(ahead + 1)
    drain(full, ring, state, stages)
