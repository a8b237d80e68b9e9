"""expert_plain_<TYPE>: y = W_e h + b_e for pairs of a row and one of its experts, of weights of any block format, element by
element through its `unpack`. The general path, as linear_plain is for other products.

h is given by `halves` (xh, factor): of pair p it is row p / each (each: experts per row where they share an input, else 1).
Expert e's matrix begins `stride` bytes, its bias `bias_stride` floats, behind that of the one before; both have `rows` rows.
order, tiles: see expert_order.py, with tokens = 8. out[p * out_stride + row] = y, or += y in mode 1. Grid: (ceil(rows / 4), tiles).
Blocks of several weights with fragments (quant/fragment.py) have faster kernels for any number of columns.
"""

from numba import cuda
from numba.types import float32, int32, int64

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .expert_order import tile_of
from .export import device, kernel

THREADS = 128
WARPS = THREADS // 32
TOKENS = 8


@device
def folded(low, high, lane, bit):
    """Lanes without `bit` get the sum of `low` over themselves and their partner, the others that of `high`."""
    mine, other = low, high
    if lane & bit:
        mine, other = high, low
    return float32(mine + ptx.shfl_xor(other, bit))


def product(block):
    """The kernel for one block format."""
    element = device(load(block.name).unpack(memory))
    nbytes, shift, last = block.nbytes, block.elements.bit_length() - 1, block.elements - 1

    def expert_plain(
        xh, factor, each, columns, order, tiles, weights, stride, rows, bias, biased, bias_stride, out, out_stride, mode,
    ):  # fmt: skip
        ptx.pdl_launch()
        ptx.pdl_wait()
        lane = int32(cuda.threadIdx.x & 31)
        row = int32(cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5))
        expert, first, count = tile_of(tiles, int32(cuda.blockIdx.y))
        w = cuda.local.array(4, float32)
        total = cuda.local.array(TOKENS, float32)
        x_at = cuda.local.array(TOKENS, int64)
        words = int32(((columns + 31) & ~31) >> 1)
        if row < rows and count > 0:
            start = ptx.address(weights, int64(expert) * stride + int64(row) * (int64(columns >> shift) * nbytes))
            for k in range(TOKENS):
                total[k] = float32(0)
                x_at[k] = int64(ptx.quotient(order[int32(first + min(int32(k), int32(count - 1)))], each)) * words
            column = int32(lane * 4)
            while column < columns:
                for k in range(4):
                    at = int32(min(int32(column + k), int32(columns - 1)))
                    w[k] = element(start + int64(at >> shift) * nbytes, int64(at & last))
                    if column + k >= columns:
                        w[k] = float32(0)
                for k in range(TOKENS):
                    even, odd = ptx.ld64(xh, x_at[k] + (column >> 1))
                    total[k] += w[0] * ptx.h2f_lo(even) + w[2] * ptx.h2f_hi(even)
                    total[k] += w[1] * ptx.h2f_lo(odd) + w[3] * ptx.h2f_hi(odd)
                column = int32(column + 128)
            for k in range(4):  # lane >> 2 is a lane's token in the end
                total[k] = folded(total[k], total[k + 4], lane, int32(16))
            for k in range(2):
                total[k] = folded(total[k], total[k + 2], lane, int32(8))
            value = folded(total[0], total[1], lane, int32(4))
            value += ptx.shfl_xor(value, int32(2))
            value += ptx.shfl_xor(value, int32(1))
            if lane & 3 == 0 and lane >> 2 < count:
                pair = order[int32(first + (lane >> 2))]
                value *= factor[ptx.quotient(pair, each)]
                if biased:
                    value += ptx.ldgf(bias, int32(expert * bias_stride + row))
                if mode == 1:
                    value += out[int64(pair) * out_stride + row]
                out[int64(pair) * out_stride + row] = value

    kernel("UFiiIIBliFiiFii", threads=THREADS, name=f"expert_plain_{block.name}")(expert_plain)


for _block in TYPES.values():
    if _block.elements == 1 or not hasattr(load(_block.name), "FRAGMENT"):
        product(_block)
