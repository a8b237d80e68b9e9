"""linear_plain_<TYPE>: y = W h + b for weights of any block format, element by element through its `unpack`.

The general path: formats without fragments (quant/fragment.py) and floats in any number of columns, any number of tokens,
no tensor cores. h is given by `halves` (xh, factor) for `count`
tokens of `columns` values; W has `rows` rows. out[token * out_stride + row] becomes value + bias (mode 0) or grows by
scale * (value + bias) (mode 1).

One warp per row of W, WARPS of them in a block; a lane takes 4 neighbouring columns, for TOKENS tokens at a time. The
grid covers the rows: (ceil(rows / WARPS)).
"""

from numba import cuda
from numba.types import float32, int32, int64

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .export import device, kernel

THREADS = 128
WARPS = THREADS // 32
TOKENS = 8


@device
def _fold(low, high, lane, bit):
    """Lanes without `bit` get the sum of `low` over themselves and their partner, the others that of `high`."""
    mine, other = low, high
    if lane & bit:
        mine, other = high, low
    return mine + ptx.shfl_xor(other, bit)


def product(block):
    """The kernel for one block format."""
    element = device(load(block.name).unpack(memory))
    nbytes, shift, last = block.nbytes, block.elements.bit_length() - 1, block.elements - 1

    def linear_plain(xh, factor, count, columns, weights, rows, bias, biased, out, out_stride, mode, scale):
        ptx.pdl_launch()
        ptx.pdl_wait()
        lane = int32(cuda.threadIdx.x & 31)
        row = int32(cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5))
        w = cuda.local.array(4, float32)
        total = cuda.local.array(TOKENS, float32)
        x_at = cuda.local.array(TOKENS, int64)
        words = int32(((columns + 31) & ~31) >> 1)
        start = ptx.address(weights, int64(row) * (int64(columns >> shift) * nbytes))
        first = int32(0)
        while row < rows and first < count:
            for k in range(TOKENS):
                total[k] = float32(0)
                x_at[k] = int64(first + k) * words
            column = int32(lane * 4)
            while column < columns:
                for k in range(4):
                    at = int32(min(int32(column + k), int32(columns - 1)))
                    w[k] = element(start + int64(at >> shift) * nbytes, int64(at & last))
                    if column + k >= columns:
                        w[k] = float32(0)
                for k in range(TOKENS):
                    if first + k < count:
                        even, odd = ptx.ld64(xh, x_at[k] + (column >> 1))
                        total[k] += w[0] * ptx.h2f_lo(even) + w[2] * ptx.h2f_hi(even)
                        total[k] += w[1] * ptx.h2f_lo(odd) + w[3] * ptx.h2f_hi(odd)
                column = int32(column + 128)
            # Sum over the lanes, halving the tokens that a lane cares about at each step: lane >> 2 is its token in the end.
            for k in range(4):
                total[k] = _fold(total[k], total[k + 4], lane, int32(16))
            for k in range(2):
                total[k] = _fold(total[k], total[k + 2], lane, int32(8))
            value = _fold(total[0], total[1], lane, int32(4))
            value += ptx.shfl_xor(value, int32(2))
            value += ptx.shfl_xor(value, int32(1))
            token = int32(first + (lane >> 2))
            if lane & 3 == 0 and token < count:
                value *= factor[token]
                if biased:
                    value += bias[row]
                place = int64(token) * out_stride + row
                if mode == 0:
                    out[place] = value
                else:
                    out[place] += scale * value
            first = int32(first + TOKENS)

    kernel("UFiiBiFiFiif", threads=THREADS, name=f"linear_plain_{block.name}")(linear_plain)


for _block in TYPES.values():
    if _block.elements == 1 or not hasattr(load(_block.name), "FRAGMENT"):
        product(_block)
