"""expert_tiles_<TOKENS>: y = W_e h + b_e for pairs of a row and one of its experts, on tensor cores as in linear_tiles.

h is given by `halves` (xh, factor) with `columns` values in a row: of pair p it is row p / each (each: experts per row where
they share an input, else 1). order, tiles: see expert_order.py, with TOKENS pairs in a tile. Each of two matrices is (weights
of the first expert, ggml type, bytes to the next expert, rows, bias, biased, floats to the next expert's bias, out): out[p *
out_stride + row]; an unused one has 0 rows. mode 0: out = y + bias; 2: out0 = act(y0) * y1 of two matrices of equal type and
rows (act 0 silu, 1 gelu), whose biases are equally far apart.

Grid: (tiles, sum over the matrices of ceil(rows / R)), in mode 2 (tiles, ceil(2 * rows0 / R)), R being 128 for 64 tokens, 64
for 32. Dynamic shared memory: 49920 bytes. Of a pair nothing depends on those beside it.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .expert_order import tile_of
from .export import device
from .linear_tiles import (
    FORMATS,
    LANE_ROWS,
    PIECE_BITS,
    RAW,
    STAGE_PIECES,
    STAGE_WORDS,
    bytes_of_row,
    finisher,
    looper,
    no_loop,
    row_bytes_of,
)

SIGNATURE = "UFiiII" + 2 * "BiliFiiF" + "iii"
MOST_TOKENS = 64
# words of shared memory behind what linear_tiles needs: of each pair of the tile where its input begins, its factor, itself
INPUT_AT = 12288
FACTOR_AT, PAIR_AT = INPUT_AT + MOST_TOKENS, INPUT_AT + 2 * MOST_TOKENS
SHARED = 4 * (INPUT_AT + 3 * MOST_TOKENS)


@device
def place_of(sh, token):
    return int64(int32(ptx.lds32(sh, int32(PAIR_AT + token))))


@device
def factor_of(factor, sh, token):
    return ptx.ldsf(sh, int32(FACTOR_AT + token))


def _fetch(shape):
    """As linear_tiles.fetcher, of inputs that lie anywhere; behind the last pair of a tile stands that one again."""
    pieces, piece_rows = shape.tokens * STAGE_PIECES // (32 * shape.row_warps), 32 * shape.row_warps // STAGE_PIECES

    def fetch(xh, sh, to, column, count, columns, token0, tid):
        piece, row = int32(tid & (STAGE_PIECES - 1)), int32(tid >> PIECE_BITS)
        column += int32(piece * 4)
        size = uint32(16)
        if column >= int32(((columns + 31) & -32) >> 1):
            size = uint32(0)
        for i in range(pieces):
            token = int32(row + i * piece_rows)
            goal = int32(to + token * STAGE_WORDS + 4 * (piece ^ (6 * (token & 1))))
            ptx.cp_async16z(sh, goal, xh, int32(int32(ptx.lds32(sh, int32(INPUT_AT + token))) + column), size)

    return device(fetch)


def product(shape, module):
    """The kernel of a shape, for the file `module` (a kernel's image is that of its file)."""
    loop, row_bytes, fetch = no_loop, bytes_of_row, _fetch(shape)
    for format in reversed(FORMATS):
        loop, row_bytes = looper(format, loop, shape, fetch), row_bytes_of(format, row_bytes)
    epilogue = finisher(shape, place_of, factor_of)
    row_warps, tokens, block_rows = shape.row_warps, shape.tokens, shape.rows

    @device
    def locate(tile, warp, rows0, mode):
        """(matrix, first row of a warp) of a block."""
        segment = int32(0)
        if mode != 2 and tile * block_rows >= rows0:
            segment, tile = int32(1), int32(tile - int32(rows0 + block_rows - 1) // block_rows)
        row0 = int32(tile * block_rows + warp * 32)
        if mode == 2:
            row0 = int32(row0 >> 1)
        return segment, row0

    def expert_tiles(
        xh, factor, each, columns, order, tiles, w0, type0, stride0, rows0, bias0, biased0, bias_stride0, out0, w1, type1, stride1,
        rows1, bias1, biased1, bias_stride1, out1, out_stride, mode, act,
    ):  # fmt: skip
        ptx.pdl_launch()
        ptx.pdl_wait()
        tid = int32(cuda.threadIdx.x)
        lane, warp = int32(tid & 31), int32((tid >> 5) & (row_warps - 1))
        g = int32(lane >> 2)
        sh = cuda.shared.array(0, uint32, alignment=128)
        raw = cuda.local.array(RAW, uint32)
        row_at = cuda.local.array(LANE_ROWS, int64)
        sums = cuda.local.array(tokens, float32)
        expert, place, count = tile_of(tiles, int32(cuda.blockIdx.x))
        if count > 0:
            if tid < tokens:
                pair = order[int32(place + min(tid, int32(count - 1)))]
                source = ptx.quotient(pair, each)
                ptx.sts32(sh, int32(INPUT_AT + tid), uint32(source * (((columns + 31) & -32) >> 1)))
                ptx.stsf(sh, int32(FACTOR_AT + tid), factor[source])
                ptx.sts32(sh, int32(PAIR_AT + tid), uint32(pair))
            cuda.syncthreads()
            for k in range(tokens):
                sums[k] = float32(0)
            segment, row0 = locate(int32(cuda.blockIdx.y), warp, rows0, mode)
            w, type, rows, stride = w0, type0, rows0, stride0
            if segment == 1:
                w, type, rows, stride = w1, type1, rows1, stride1
            line, start = row_bytes(type, columns), int64(expert) * stride
            for r in range(LANE_ROWS):
                row = int32(row0 + g + 8 * r)
                matrix = w
                if mode == 2:
                    row = int32(row0 + g + 8 * (r & 1))
                    if r >= 2:
                        matrix = w1
                row_at[r] = ptx.address(matrix, start + int64(min(row, int32(rows - 1))) * line)
            loop(type, row_at, xh, sh, count, columns, int32(0), tid, raw, sums)
            # Found again, so that it needs no registers in the loop.
            expert, place, count = tile_of(tiles, ptx.opaque(int32(cuda.blockIdx.x)))
            tid = ptx.opaque(int32(cuda.threadIdx.x))
            warp = int32((tid >> 5) & (row_warps - 1))
            segment, row0 = locate(ptx.opaque(int32(cuda.blockIdx.y)), warp, rows0, mode)
            rows, bias, biased, out, bias_stride = rows0, bias0, biased0, out0, bias_stride0
            if segment == 1:
                rows, bias, biased, out, bias_stride = rows1, bias1, biased1, out1, bias_stride1
            epilogue(
                sums, sh, tid, factor, count, int32(0), row0, rows, bias, biased, bias1, biased1, int32(expert * bias_stride), out,
                out_stride, mode, act, float32(1),
            )  # fmt: skip

    expert_tiles.__module__ = module
    return expert_tiles
