"""conv: a causal convolution per channel over the strands of a batch (ops/conv.py). Grid: ceil(columns / 128).

A thread computes one channel for all tokens, one after another: a strand may continue from what an earlier one left.
places: address of each place of states; strands: int32 {their number, then first row, count, source, destination of each};
offset: of this state in a place, in float32.
"""

from numba import cuda
from numba.types import float32, int32, int64

from . import ptx
from .export import device, kernel

THREADS = 128


@device
def place_of(places, place, offset):
    """Address of a state in a place; 0 for none."""
    address = int64(0)
    if place >= 0:
        address = int64(places[place] + int64(4) * int64(offset))
    return address


@device
def seen(x, tail, index, first, columns, before, c):
    """Row `index` of a strand at a channel; before its first row what the tail holds, 0 where there is none."""
    value = float32(0)
    if index >= 0:
        value = x[int32((first + index) * columns + c)]
    elif tail != 0:
        value = ptx.ldf(tail, int64(int32(4) * int32((index + before) * columns + c)))
    return value


@kernel("FFFFLIiiii", threads=THREADS)
def conv(x, w, b, y, places, strands, offset, columns, taps, biased):
    """x, y: float32[rows, columns]; w: float32[columns, taps]; b: float32[columns], read where biased."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    c = int32(cuda.blockIdx.x * THREADS + cuda.threadIdx.x)
    before = int32(taps - 1)
    strand = int32(1)
    end = int32(1 + 4 * strands[0])
    if c >= columns:
        end = int32(0)
    start = float32(0)
    if biased != 0 and c < columns:
        start = b[c]
    while strand < end:
        first, count = int32(strands[strand]), int32(strands[int32(strand + 1)])
        tail = place_of(places, int32(strands[int32(strand + 2)]), offset)
        after = place_of(places, int32(strands[int32(strand + 3)]), offset)
        row = int32(0)
        while row < count:
            total = start
            j = int32(0)
            while j < taps:
                value = seen(x, tail, int32(row + j - before), first, columns, before, c)
                total = ptx.fmaf(w[int32(c * taps + j)], value, total)
                j = int32(j + 1)
            y[int32((first + row) * columns + c)] = total
            row = int32(row + 1)
        j = int32(0)
        while j < before and after != 0:  # upwards, since the two tails may be one
            value = seen(x, tail, int32(count + j - before), first, columns, before, c)
            ptx.stf(after, int64(int32(4) * int32(j * columns + c)), value)
            j = ptx.opaque(int32(j + 1))
        strand = int32(strand + 4)
