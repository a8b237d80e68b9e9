"""The matrix product around a dot product: which rows a thread computes, token tiles, bias and residual addition.

Exported by host/linear_*.py as linear_q8_<NAME> (input: quantized groups) or linear_f32_<NAME> (input: float32) for
every block format whose file binds LANES; formats without it use linear_decoded.
"""

from ..quant import load
from ..quant.types import TYPES
from .dot import tile_of, tile_sizes
from .export import helper
from .intrinsics import call3, load_i64
from .points import LOADED

ROW_BLOCK = 16  # weight rows that stay in cache while all tokens pass over them
ALIGNMENT = 32  # threads split outputs in multiples of a quantization block


@helper
def share(count, thread, threads):
    """First item of thread's share of `count`; shares are multiples of ALIGNMENT but for the last."""
    if thread >= threads:
        return count
    return (count // ALIGNMENT) * thread // threads * ALIGNMENT


def formats(kind):
    """(ggml name, LANES) of every block format whose lanes are of class `kind`, or of one of those."""
    for block in TYPES.values():
        record = getattr(load(block.name), "LANES", None)
        if isinstance(record, kind):
            yield block.name, record


@helper
def bias_from(bias, row):
    """Address of entry `row` of a float32 vector; 0 where there is none."""
    return bias + 4 * row if bias != 0 else 0


def _tile_of(record, name, way=LOADED):
    """(most tokens per tile, function computing rows for a tile)."""
    limit = tile_sizes() if hasattr(record, "group") else 4  # float32 activations are four times as many bytes to keep in cache
    return limit, tile_of(record, limit, f"dot_{name}", way)


# step: 0 weights, 1 bias or 0, 2 input, 3 output, 4 groups, 5 tail, 6 rows, 7 address of the token count, 8 bytes per weight row,
# 9 bytes per input row, 10 bytes per output row; of decoded_kernel: 11 scratch, 12 scratch bytes per thread, 13 decoder, 14 columns


def step_kernel(record, name, way=LOADED):
    """linear(step, thread, threads) for a LANES record: each thread computes its share of the weight rows."""
    limit, tile = _tile_of(record, name, way)

    def linear(step, thread, threads):
        weights, bias, x, out = load_i64(step), load_i64(step + 8), load_i64(step + 16), load_i64(step + 24)
        groups, tail, rows, tokens = load_i64(step + 32), load_i64(step + 40), load_i64(step + 48), load_i64(load_i64(step + 56))
        row_bytes, x_stride, out_stride = load_i64(step + 64), load_i64(step + 72), load_i64(step + 80)
        start, last = share(rows, thread, threads), share(rows, thread + 1, threads)
        tiles = (tokens + limit - 1) // limit
        block = ROW_BLOCK if tiles > 1 else last - start
        while start < last:
            stop = min(start + block, last)
            for k in range(tiles):
                t = tokens * k // tiles
                count = tokens * (k + 1) // tiles - t
                w, at = weights + start * row_bytes, out + t * out_stride + 4 * start
                own_bias = bias_from(bias, start)
                tile(count, w, row_bytes, stop - start, x + t * x_stride, x_stride, groups, tail, at, out_stride, own_bias)
            start = stop
        return 0

    linear.__name__ = linear.__qualname__ = name
    return linear


def decoded_kernel(record, name):
    """The same for any block format: a row is expanded to float32 by its decoder, then multiplied with all tokens."""
    limit, tile = _tile_of(record, name)

    def linear(step, thread, threads):
        weights, bias, x, out = load_i64(step), load_i64(step + 8), load_i64(step + 16), load_i64(step + 24)
        groups, tail, rows, tokens = load_i64(step + 32), load_i64(step + 40), load_i64(step + 48), load_i64(load_i64(step + 56))
        row_bytes, x_stride, out_stride = load_i64(step + 64), load_i64(step + 72), load_i64(step + 80)
        row = load_i64(step + 88) + thread * load_i64(step + 96)
        tiles = (tokens + limit - 1) // limit
        for r in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
            call3(load_i64(step + 104), weights + r * row_bytes, row, load_i64(step + 112))
            for k in range(tiles):
                t = tokens * k // tiles
                count = tokens * (k + 1) // tiles - t
                at = out + t * out_stride + 4 * r
                tile(count, row, 0, 1, x + t * x_stride, x_stride, groups, tail, at, out_stride, bias_from(bias, r))
        return 0

    linear.__name__ = linear.__qualname__ = name
    return linear
