"""Weights of the persistent decode kernel: one warp copies this block's rows, in the order of use, through a ring of stages.

It never looks at activations, so it runs ahead of the arithmetic and over the exchanges between blocks. A stage holds up to
32 rows, or up to 16 rows of a part of the columns; each lane copies a row. Bulk copies move 16 aligned bytes at least, but rows
of some formats start anywhere: the aligned bytes around a row are copied, and readers add the row's `address & 15`.
"""

from numba import cuda
from numba.types import int32, int64, uint32

from . import ptx
from .export import device

STAGE = 18944  # bytes: 16 rows of 8 units of 144 bytes, or 32 rows of 4
LIMIT = 20000  # polls before a thread gives up, some 15 ms: nothing can hang
PAIRED = 128  # rows of the gate matrix in one pass; as many of the up matrix go with them
PASS = 256  # rows of any other matrix in one pass
QKV, OUT, GATE, DOWN, HEAD = range(5)  # the products of a layer, and the last one
ENTRY = 24  # int64 words of a layer in the table


@device
def await_barrier(barriers, stage, parity, state):
    """Wait for a phase of a stage's barrier; state: [polls allowed, whether any wait failed]."""
    polls = int32(0)
    while ptx.mbar_try_wait(barriers, int32(2 * stage), uint32(parity)) == 0 and polls < state[0]:
        polls = int32(polls + 1)
    if polls >= state[0]:
        state[0] = int32(1)
        state[1] = int32(1)


@device
def advance(ring, stages):
    """ring: [stage, phase parity]."""
    following = int32(ring[0] + 1)
    if following == stages:
        following = int32(0)
        ring[1] = int32(ring[1] ^ 1)
    ring[0] = following


@device
def rows_of(phase, matrix, first, last, query_rows, kv_rows):
    """Where the phase's rows first...last lie in one of its matrices: (row, end, place among the pass's sums)."""
    row = int32(first)
    end = int32(last)
    place = int32(0)
    if phase == GATE:
        place = int32(matrix * PAIRED)
    if phase == QKV:
        low = int32(0)
        high = int32(query_rows)
        if matrix > 0:
            low = int32(query_rows + (matrix - 1) * kv_rows)
            high = int32(low + kv_rows)
        row = int32(max(int32(first), low) - low)
        end = int32(min(int32(last), high) - low)
        place = int32(row + low - first)
    return row, end, place


@device
def stream_rows(sh, full, empty, halt, ring, state, stages, address, shape, columns, first, end, lane):
    """Copy rows first...end of a matrix. shape: see persistent.py, 'Table'."""
    taken = int32((shape >> 8) & 255)
    stride = int32((shape >> 32) & 65535)
    unit = int32((shape >> 48) & 65535)
    step = int32(int32((shape >> 16) & 65535) * unit)
    row_bytes = int32((unit * columns) >> 8)
    row = int32(first)
    while row < end:
        count = int32(min(taken, int32(end - row)))
        at = int32(0)
        while at < row_bytes:
            stage = int32(ring[0])
            polls = int32(0)
            while ptx.mbar_try_wait(empty, int32(2 * stage), uint32(ring[1] ^ 1)) == 0 and polls < state[0]:
                polls = int32(polls + 1)
                if ptx.lds32(halt, 0) != 0:  # the text has ended: what was copied ahead is not wanted
                    polls = int32(LIMIT)
                    state[2] = int32(1)
            if polls >= state[0] and state[2] == 0:
                state[0] = int32(1)
                state[1] = int32(1)
            cuda.syncwarp()
            state[2] = int32(ptx.redux_max(uint32(state[2])))
            mine = int32(min(int32(lane), int32(count - 1)))
            source = int64(address + int64(row + mine) * int64(row_bytes) + int64(at))
            shift = int32(source & 15)
            size = int32((shift + min(step, int32(row_bytes - at)) + 15) & -16)
            used = int32(0)
            if lane < count and state[1] == 0 and state[2] == 0:
                used = size
            total = ptx.redux_add(used)
            if lane == 0 and total > 0:
                ptx.mbar_expect(full, int32(2 * stage), uint32(total))
            cuda.syncwarp()
            if used > 0:
                ptx.bulk_g2s(sh, int32(stage * STAGE + lane * stride), int64(source - shift), int32(0), full, int32(2 * stage), uint32(size))
            if state[2] == 0:
                advance(ring, stages)
            at = int32(at + step)
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
