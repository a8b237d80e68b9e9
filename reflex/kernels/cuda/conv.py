"""conv: causal convolutions per channel over the strands of a batch (ops/conv.py), of up to three buffers at once.

Grid: (blocks of 128 channels of each buffer, those of the first one first; 1 + ceil(rows / 8)). Blocks with y = 0 go through the
strands one after another, each of which may continue from what an earlier one left: they compute the rows that reach back behind a
strand's first, and leave its last rows in its place. All other rows are computed by the other blocks, 8 each, which need no
place; without them where the batch has fewer rows than a filter has taps.
places: address of each place of states; strands: int32 {their number, then first row, count, source, destination of each};
offset: of a buffer's state in a place, in float32. Flags: SILU (of the result), BIASED.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import device, kernel
from .gated import silu

THREADS, ROWS, TAPS = 128, 8, 4  # TAPS: at most
EDGE, WINDOW = 2 * TAPS - 2, ROWS + TAPS - 1  # rows that a thread needs
SILU, BIASED = 1, 2


@device
def word_of(strands, i):
    """A word of the strands, which the copy of the request brings: no launch but the first needs to wait for it."""
    return int32(ptx.ldg32_if(strands, i, uint32(1)))


@device
def place_of(places, place, offset):
    """Address of a state in a place; 0 for none."""
    low, high = ptx.ldg64_if(places, int32(max(place, int32(0))), uint32(1))
    address = int64((int64(high) << 32) | int64(low)) + int64(4) * int64(offset)
    return int64(address if place >= 0 else 0)


@device
def store(y, at, total, flags):
    if flags & SILU != 0:
        total = silu(total)
    y[at] = total


@device
def edges(x, w, start, y, places, strands, offset, columns, taps, flags, c):
    """The first rows of every strand, and what it leaves."""
    value = cuda.local.array(EDGE, float32)
    before = int32(taps - 1)
    strand, end = int32(1), int32(1 + 4 * word_of(strands, int32(0)))
    while strand < end:
        first, count = word_of(strands, strand), word_of(strands, int32(strand + 1))
        tail = place_of(places, word_of(strands, int32(strand + 2)), offset)
        after = place_of(places, word_of(strands, int32(strand + 3)), offset)
        own = ptx.address(x, int32(first * columns + c))
        for i in range(EDGE):
            row, there, base = int32(i - before), i < before + count, own
            if i < before:
                row, there, base = int32(i), tail != 0, int64(tail + 4 * c)
            if not there:
                row, base = int32(0), own  # what can be read
            found = ptx.ldf(base, int64(int32(4 * row * columns)))
            value[i] = found if there else float32(0)
        for row in range(TAPS - 1):
            if row < min(before, count):
                total = start
                for j in range(TAPS):
                    if j < taps:
                        total = ptx.fmaf(w[j], value[row + j], total)
                store(y, int32((first + row) * columns + c), total, flags)
        for j in range(TAPS - 1):
            if j < before and after != 0:
                if count < before:
                    left = value[j + 1]
                    for n in range(2, TAPS - 1):
                        if count == n:
                            left = value[j + n]
                else:
                    left = x[int32((first + count - before + j) * columns + c)]
                ptx.stf(after, int64(int32(4 * (j * columns + c))), left)
        strand = int32(strand + 4)


@device
def inner(x, w, start, y, strands, columns, taps, flags, c, row):
    """Those of ROWS rows that reach back to rows of their own strand only."""
    value = cuda.local.array(WINDOW, float32)
    before, last = int32(taps - 1), int32(-1)
    mask = int32(0)
    strand, end = int32(1), int32(1 + 4 * word_of(strands, int32(0)))
    while strand < end:
        first = word_of(strands, strand)
        to = int32(min(int32(first + word_of(strands, int32(strand + 1)) - row), int32(ROWS)))
        since = int32(max(int32(first + before - row), int32(0)))
        if since < to:
            mask = int32(mask | ((1 << to) - (1 << since)))
            last = int32(max(last, int32(row + to - 1)))
        strand = int32(strand + 4)
    if mask != 0:
        for i in range(WINDOW):
            value[i] = x[int32(min(int32(max(int32(row - before + i), int32(0))), last) * columns + c)]
        for i in range(ROWS):
            if mask & (1 << i) != 0:
                total = start
                for j in range(TAPS):
                    if j < taps:
                        total = ptx.fmaf(w[j], value[i + j], total)
                store(y, int32((row + i) * columns + c), total, flags)


@kernel("FFFFiiFFFFiiFFFFiiLIii", threads=THREADS)
def conv(
    x, w, b, y, offset, columns, x_2, w_2, b_2, y_2, offset_2, columns_2, x_3, w_3, b_3, y_3, offset_3, columns_3, places, strands,
    taps, flags,
):  # fmt: skip
    """x, y: float32[rows, columns]; w: float32[columns, taps]; b: float32[columns], read where biased. Buffers that are not there
    have 0 columns."""
    weights = cuda.local.array(TAPS, float32)
    ptx.pdl_launch()
    block, here = int32(cuda.blockIdx.x), int32((columns + THREADS - 1) >> 7)
    if block >= here:
        block = int32(block - here)
        x, w, b, y, offset, columns = x_2, w_2, b_2, y_2, offset_2, columns_2
        here = int32((columns + THREADS - 1) >> 7)
        if block >= here:
            block = int32(block - here)
            x, w, b, y, offset, columns = x_3, w_3, b_3, y_3, offset_3, columns_3
    c, start = int32(block * THREADS + cuda.threadIdx.x), float32(0)
    if c < columns:
        for j in range(TAPS):
            if j < taps:
                weights[j] = ptx.ldgf(w, int32(c * taps + j))
        if flags & BIASED != 0:
            start = ptx.ldgf(b, c)
    ptx.pdl_wait()
    if c < columns:
        if cuda.blockIdx.y == 0:
            edges(x, weights, start, y, places, strands, offset, columns, taps, flags, c)
        else:
            inner(x, weights, start, y, strands, columns, taps, flags, c, int32((cuda.blockIdx.y - 1) * ROWS))
