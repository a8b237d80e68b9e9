"""What the phases of the persistent decode kernel have to do with which matrices and rows. Pure arithmetic, for the warp
that streams weights and the warps that compute alike: both must walk in the same order."""

from numba.types import int32, int64, uint32

from . import ptx
from .export import device

QKV, OUT, GATE, DOWN, HEAD = range(5)  # the products of a layer, and the last one
PAIRED = 128  # rows of the gate matrix in one pass; as many of the up matrix go with them
PASS = 256  # rows of any other matrix in one pass; half as many where a row has more than 8 slices
SLICE = 1024  # columns; at most 16 slices (8 of the gate) in a row
ENTRY = 24  # int64 words of a layer in the table
LINE = 192  # bytes of them


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
def slices_of(columns):
    """Parts of a row that make sums of their own."""
    return int32((columns + SLICE - 1) >> 10)


@device
def stride_of(columns):
    """Sums of a slice in one pass: as many rows as a pass has."""
    stride = int32(PASS)
    if columns > 8 * SLICE:
        stride = int32(PAIRED)
    return stride


@device
def rows_in_pass(phase, columns):
    most = stride_of(columns)
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
