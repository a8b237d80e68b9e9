"""Float32 activations to signed bytes with one scale per 32 values (layout: reflex/kernels/dot.py).

Each value is rounded to the nearest multiple of scale = max|x| / 127, ties to even.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..dot import FIRST_SUMS, QUANTIZED_GROUP, SCALES, SECOND_SUMS
from ..export import export, helper
from ..intrinsics import I64, f32, i8, i64, load_i64
from ..linear import share
from ..vector import V8F, V8I, Vectors, vector


@intrinsic
def quantize_block(typingctx, source, group, index):
    """32 float32 at `source` become block `index` of the group."""

    def codegen(context, builder, signature, arguments):
        v, b = Vectors(builder), builder
        source, group = v.pointer(arguments[0]), v.pointer(arguments[1])
        index = arguments[2]
        x = [v.load(v.at(source, 32 * i), V8F) for i in range(4)]
        sizes = [v.unary("fabs", value) for value in x]
        largest = v.fold(v.maximum(v.maximum(sizes[0], sizes[1]), v.maximum(sizes[2], sizes[3])), v.maximum)
        scale = b.fmul(largest, ir.Constant(f32, 1.0 / 127.0))
        positive = b.fcmp_ordered(">", scale, ir.Constant(f32, 0.0))
        inverse = b.select(positive, b.fdiv(ir.Constant(f32, 1.0), scale), ir.Constant(f32, 0.0))
        spread = v.splat(inverse)
        q = [b.fptosi(v.unary("rint", b.fmul(value, spread)), V8I) for value in x]
        codes = b.trunc(v.join(v.join(q[0], q[1]), v.join(q[2], q[3])), vector(i8, 32))
        v.store(codes, b.gep(group, [b.mul(index, ir.Constant(i64, 32))]))
        at = b.gep(group, [b.mul(index, ir.Constant(i64, 4))])
        v.store(scale, v.at(at, SCALES))
        for offset, pair in ((FIRST_SUMS, q[:2]), (SECOND_SUMS, q[2:])):
            total = b.sitofp(v.sum_int(b.add(*pair)), f32)
            v.store(b.fmul(total, scale), v.at(at, offset))
        return context.get_dummy_value()

    return types.void(I64, I64, I64), codegen


@helper
def quantize_part(x, x_stride, out, out_stride, row, stop, block, last):
    for r in range(row, stop):
        for k in range(block, last):
            quantize_block(x + r * x_stride + 128 * k, out + r * out_stride + (k >> 3) * QUANTIZED_GROUP, k & 7)
    return 0


# step: 0 input, 1 output, 2 blocks per row, 3 address of the row count, 4 bytes per input row, 5 bytes per output row


@export
def quantize_rows(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows = load_i64(load_i64(step + 24))
    for k in range((rows - thread + threads - 1) // threads):
        r = thread + k * threads
        quantize_part(
            load_i64(step), load_i64(step + 32), load_i64(step + 8), load_i64(step + 40), r, r + 1, 0, load_i64(step + 16)
        )
    return 0


@export
def quantize_columns(step, thread, threads):
    """Each thread takes the columns that it also takes as rows of a linear step."""
    columns = load_i64(step + 16) * 32
    first, last = share(columns, thread, threads) >> 5, share(columns, thread + 1, threads) >> 5
    rows = load_i64(load_i64(step + 24))
    return quantize_part(load_i64(step), load_i64(step + 32), load_i64(step + 8), load_i64(step + 40), 0, rows, first, last)
