"""expand_<TYPE>: weights of any block format as float16 (or, where `wide` is not 0, float32), in the order of the file,
through the format's `unpack`.

For products of many rows in formats that tensor cores are not fed from directly (linear_tiles then takes the result as
F16), and for weights kept as floats. Values beyond float16 become infinite there. count: a multiple of 8, 2**31 - 1 at most.
One thread per 8 values. Grid: (ceil(count / VALUES)).
"""

from numba import cuda
from numba.types import float32, int32, int64

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .export import device, kernel

THREADS = 256
VALUES = 8 * THREADS


def expansion(block):
    """The kernel for one block format."""
    element = device(load(block.name).unpack(memory))
    nbytes, shift, last = block.nbytes, block.elements.bit_length() - 1, block.elements - 1

    def expand(weights, out, count, wide):
        ptx.pdl_launch()
        v = cuda.local.array(8, float32)
        first = int32((cuda.blockIdx.x * THREADS + cuda.threadIdx.x) * 8)
        start = ptx.address(weights, int64(0))
        for k in range(8):
            v[k] = float32(0)
        if first < count:
            for k in range(8):
                at = int32(first + k)
                v[k] = element(start + int64(at >> shift) * nbytes, int64(at & last))
        ptx.pdl_wait()
        if first < count and wide:
            ptx.st128(out, first, ptx.f2bits(v[0]), ptx.f2bits(v[1]), ptx.f2bits(v[2]), ptx.f2bits(v[3]))
            ptx.st128(out, int32(first + 4), ptx.f2bits(v[4]), ptx.f2bits(v[5]), ptx.f2bits(v[6]), ptx.f2bits(v[7]))
        elif first < count:
            ptx.st128(
                out, int32(first >> 1), ptx.f2h2(v[0], v[1]), ptx.f2h2(v[2], v[3]), ptx.f2h2(v[4], v[5]), ptx.f2h2(v[6], v[7])
            )

    kernel("BUii", threads=THREADS, name=f"expand_{block.name}")(expand)


for _block in TYPES.values():
    expansion(_block)
