"""What a block has to do in the phases of the persistent decode kernel, as a list of segments: rows of one matrix that a stage
holds. The warp that streams weights and the warps that compute walk along it. Layers with matrices of the same types share
a list, which the block makes in shared memory before the first token.

A segment is a slice of some rows, in four words: ggml type | rows << 8 | matrix of the table << 16 | LAST_OF_PASS |
LAST_OF_PHASE; byte offset of its beginning in the matrix; first row's place among the pass's | first block of 256 columns <<
16 | blocks << 24; bytes of a row's slice | bytes from row to row in the stage << 16.
"""

from numba.types import int32, int64, uint32

from . import ptx
from .export import device

QKV, OUT, GATE, DOWN, HEAD = range(5)  # the products of a layer, and the last one
PAIRED = 128  # rows of the gate matrix in one pass; as many of the up matrix go with them
PASS = 256  # rows of any other matrix in one pass
ENTRY = 24  # int64 words of a layer in the table
LINE = 192  # bytes of them
LISTED = 15  # word of a line: where the list of its segments begins, in segments
NAMESAKE = 23  # word of a line: the first line with that list
SEGMENT = 16  # bytes
LAST_OF_PASS, LAST_OF_PHASE = 1 << 24, 1 << 25


@device
def entry64(sh, at):
    """A word of the table in shared memory."""
    low, high = ptx.lds64(sh, at)
    return int64((int64(high) << 32) | int64(low))


@device
def phases_of(layer, layers):
    """The first phase of a layer, and the one past its last; the entry behind the layers has the head alone."""
    first = int32(QKV)
    past = int32(HEAD)
    if layer == layers:
        first = int32(HEAD)
        past = int32(HEAD + 1)
    return first, past


@device
def columns_of(phase, width, query_rows, hidden):
    columns = int32(width)
    if phase == OUT:
        columns = int32(query_rows)
    if phase == DOWN:
        columns = int32(hidden)
    return columns


@device
def rows_of(phase, width, query_rows, kv_rows, hidden, vocabulary):
    """All rows of a phase; pairs of rows for gate and up."""
    total = int32(width)
    if phase == QKV:
        total = int32(query_rows + 2 * kv_rows)
    if phase == GATE:
        total = int32(hidden)
    if phase == HEAD:
        total = int32(vocabulary)
    return total


@device
def first_of_share(total, block, blocks):
    """First of a block's part of `total` rows."""
    return int32(uint32(total * block) // uint32(blocks))


@device
def matrices_of(phase):
    """(first, number) of the phase's matrices in the table."""
    first = int32(0)
    count = int32(1)
    if phase == QKV:
        count = int32(3)
    if phase == OUT:
        first = int32(3)
    if phase == GATE:
        first = int32(4)
        count = int32(2)
    if phase == DOWN:
        first = int32(6)
    return first, count


@device
def row_bytes_of(sh, line, segment, columns):
    """Bytes of a row of the matrix that a segment (its first word) belongs to."""
    high = ptx.lds32(sh, int32(line + 68 + int32((segment >> uint32(16)) & 15) * 8))
    return int32((int32(high & 65535) * columns) >> 8)


@device
def rows_in_pass(phase):
    most = int32(PASS)
    if phase == GATE:
        most = int32(PAIRED)
    return most


@device
def rows_in_matrix(phase, matrix, first, last, query_rows, kv_rows):
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
def list_segments(sh, at, tab, entry, phase, past, width, query_rows, kv_rows, hidden, vocabulary, block, blocks):
    """Write the segments of phases phase...past of the table's line `entry` from `at` on. A phase without rows has one segment."""
    line = int32(tab + entry * LINE)
    while phase < past:
        columns = columns_of(phase, width, query_rows, hidden)
        total = rows_of(phase, width, query_rows, kv_rows, hidden, vocabulary)
        first = first_of_share(total, block, blocks)
        end = first_of_share(total, int32(block + 1), blocks)
        matrix, matrices = matrices_of(phase)
        if first == end:
            ptx.sts128(sh, at, uint32(0), uint32(0), uint32(0), uint32(0))
            at = int32(at + SEGMENT)
        while first < end:
            last = int32(min(int32(first + rows_in_pass(phase)), end))
            i = int32(0)
            while i < matrices:
                row, row_end, place = rows_in_matrix(phase, i, first, last, query_rows, kv_rows)
                shape = entry64(sh, int32(line + 64 + (matrix + i) * 8))
                taken = int32((shape >> 8) & 255)
                most = int32((shape >> 16) & 255)
                unit = int32((shape >> 32) & 65535)
                row_bytes = int32((unit * columns) >> 8)
                what = uint32(int32(shape & 255) | ((matrix + i) << 16))
                pitch = uint32(int32((shape >> 48) & 65535) << 16)
                while row < row_end:
                    count = int32(min(taken, int32(row_end - row)))
                    offset = uint32(uint32(row) * uint32(row_bytes))
                    block_at = int32(0)
                    while block_at * 256 < columns:
                        units = int32(min(most, int32(((columns + 255) >> 8) - block_at)))
                        size = int32(min(int32(units * unit), int32(row_bytes - block_at * unit)))
                        ptx.sts128(
                            sh, at, uint32(what | uint32(count << 8)), uint32(offset + uint32(block_at * unit)),
                            uint32(place | (block_at << 16) | (units << 24)), uint32(uint32(size) | pitch),
                        )  # fmt: skip
                        at = int32(at + SEGMENT)
                        block_at = int32(block_at + most)
                    row = int32(row + taken)
                    place = int32(place + taken)
                i = int32(i + 1)
            ptx.sts32(sh, int32(at - SEGMENT), uint32(ptx.lds32(sh, int32(at - SEGMENT)) | uint32(LAST_OF_PASS)))
            first = last
        begin = int32(at - SEGMENT)
        ptx.sts32(sh, begin, uint32(ptx.lds32(sh, begin) | uint32(LAST_OF_PASS | LAST_OF_PHASE)))
        phase = int32(phase + 1)
