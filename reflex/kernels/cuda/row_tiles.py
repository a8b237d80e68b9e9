"""Tiles of 16 rows among the matrices of a launch, which up to three products of the same input share. Called by linear_rows.py and
linear_stream.py."""

from numba.types import int32

from .export import device
from .gated import FORMULAS

WARPS = 8  # of a block
silu, gelu = FORMULAS.values()


@device
def activated(act, x):
    if act == 0:
        return silu(x)
    return gelu(x)


@device
def locate(index, mode, tiles0, tiles1):
    """(matrix, its tile) of a tile of the launch; behind the last one, rows that the matrix does not have."""
    segment = int32(0)
    if mode == 2:
        segment = int32(index & 1)
        index = int32(index >> 1)
    elif index >= tiles0:
        segment, index = int32(1), int32(index - tiles0)
        if index >= tiles1:
            segment, index = int32(2), int32(index - tiles1)
    return segment, index


@device
def lane_rows(tile, g, rows):
    """(the row of lanes g in a tile, how far below its second row is); rows past the last are read as others."""
    r = int32(min(int32(16 * tile + g), int32(rows - 1)))
    below = int32(0)
    if r + 8 < rows:
        below = int32(8)
    return r, below


@device
def pick(segment, a, b, c):
    if segment == 1:
        a = b
    if segment == 2:
        a = c
    return a
