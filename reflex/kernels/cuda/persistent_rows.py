"""A pass of rows of the persistent decode kernel: streamed weights times the vector in shared memory, and the sums of it."""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device
from .persistent_dots import eight_bits, four_bit_product, six_bit_product
from .persistent_phases import ENTRY, PASS, entry64, matrices_of, rows_in_matrix
from .persistent_stream import advance, await_barrier

FOUR, SIX, EIGHT = 12, 14, 8  # ggml ids of the formats there are products for
four_bits, four_bits_of_8 = four_bit_product(True), four_bit_product(False)
six_bits, six_bits_of_8 = six_bit_product(True), six_bit_product(False)


@device
def multiply_units(sh, code, rows, left, right, unit_bytes, vector, room, unit, here, dealt, columns, warp, lane, sums):
    """The warp's units of those in a stage, for one tile."""
    u = int32((warp - dealt) & 7)
    while u < here:
        o = int32(u * unit_bytes)
        if code == FOUR:
            if rows > 8:
                four_bits(sh, int32(left + o), int32(right + o), vector, room, int32(unit + u), lane, sums)
            else:
                four_bits_of_8(sh, int32(left + o), int32(left + o), vector, room, int32(unit + u), lane, sums)
        elif code == SIX:
            if rows > 8:
                six_bits(sh, int32(left + o), int32(right + o), vector, room, int32(unit + u), lane, sums)
            else:
                six_bits_of_8(sh, int32(left + o), int32(left + o), vector, room, int32(unit + u), lane, sums)
        else:
            eight_bits(sh, int32(left + o), int32(right + o), vector, room, int32(unit + u), columns, lane, sums)
        u = int32(u + 8)


@device
def store_sums(partial, at, rows, sums, lane):
    """Add up the four lanes of each row, and store."""
    v = sums[0]
    w = sums[1]
    v += ptx.shfl_xor(v, 1)
    w += ptx.shfl_xor(w, 1)
    v += ptx.shfl_xor(v, 2)
    w += ptx.shfl_xor(w, 2)
    r = int32(lane >> 2)
    if lane & 3 == 0:
        if r < rows:
            partial[uint32(at + r)] = v
        if r + 8 < rows:
            partial[uint32(at + r + 8)] = w
    sums[0] = float32(0)
    sums[1] = float32(0)


@device
def multiply(
    sh, partial, full, empty, ring, state, stages, stage_bytes, tab, layer, phase, first, last, columns, query_rows, kv_rows,
    vector, room, into, warp, lane,
):  # fmt: skip
    """Rows first...last of a phase: every warp's part of each row's sum into partial[into + 256 warp + row]. The units of all
    tiles are dealt out to the warps in turn, so that a number of units per row that 8 does not divide costs little."""
    sums = cuda.local.array(2, float32)
    sums[0] = float32(0)
    sums[1] = float32(0)
    dealt = int32(0)
    g = int32(lane >> 2)
    matrix, matrices = matrices_of(phase)
    i = int32(0)
    while i < matrices:
        row, row_end, place = rows_in_matrix(phase, i, first, last, query_rows, kv_rows)
        at = int32(tab + (layer * ENTRY + matrix + i) * 8)
        shape = entry64(sh, int32(at + 64))
        offset = int32(ptx.lds32(sh, at) & uint32(15))
        code = int32(shape & 255)
        taken = int32((shape >> 8) & 255)
        chunk = int32((shape >> 16) & 65535)
        stride = int32((shape >> 32) & 65535)
        unit_bytes = int32((shape >> 48) & 65535)
        row_bytes = int32((unit_bytes * columns) >> 8)
        units = int32((columns + 255) >> 8)
        while row < row_end:
            count = int32(min(taken, int32(row_end - row)))
            unit = int32(0)
            while unit < units:
                here = int32(min(chunk, int32(units - unit)))
                await_barrier(full, int32(ring[0]), int32(ring[1]), state)
                tile = int32(0)
                while tile < count:
                    rows = int32(min(int32(16), int32(count - tile)))
                    r = int32(tile + min(g, int32(rows - 1)))
                    left = int32(ring[0] * stage_bytes + r * stride + ((offset + (row + r) * row_bytes + unit * unit_bytes) & 15))
                    r = int32(tile + min(int32(g + 8), int32(rows - 1)))
                    right = int32(ring[0] * stage_bytes + r * stride + ((offset + (row + r) * row_bytes + unit * unit_bytes) & 15))
                    multiply_units(
                        sh, code, rows, left, right, unit_bytes, vector, room, unit, here, dealt, columns, warp, lane, sums
                    )
                    dealt = int32(dealt + here)
                    if unit + here == units:
                        store_sums(partial, int32(into + warp * PASS + place + tile), rows, sums, lane)
                    tile = int32(tile + 16)
                cuda.syncwarp()
                if lane == 0:
                    ptx.mbar_arrive(empty, int32(2 * ring[0]))
                advance(ring, stages)
                unit = int32(unit + chunk)
            row = int32(row + taken)
            place = int32(place + taken)
        i = int32(i + 1)


@device
def add_up(partial, at):
    """The sum of the eight warps' parts of a row."""
    value = float32(0)
    for k in range(8):
        value += partial[uint32(at + k * PASS)]
    return value
