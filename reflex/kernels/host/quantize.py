"""Float32 activations to signed bytes with one scale per 16 values (layout: reflex/kernels/dot.py).

Each value is rounded to the nearest multiple of scale = max|x| / 127, ties to even.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...quant.lanes import COMBED, TURNED
from ..dot import CODES, LESS, QUANTIZED_GROUP, SCALES, SUMS
from ..export import export, helper
from ..intrinsics import I64, f32, i8, i32, i64, load_i64
from ..linear import share
from ..vector import V8F, V8I, Vectors, vector


@intrinsic
def quantize_block(typingctx, source, group, index):
    """32 float32 at `source` become block `index` of the group."""

    def codegen(context, builder, signature, arguments):
        v, b = Vectors(builder), builder
        source, group = v.pointer(arguments[0]), v.pointer(arguments[1])
        index = arguments[2]
        codes, scales, sums, less = [], [], [], []
        for half in (0, 1):
            x = [v.load(v.at(source, 64 * half + 32 * i), V8F) for i in (0, 1)]
            largest = v.fold(v.maximum(v.unary("fabs", x[0]), v.unary("fabs", x[1])), v.maximum)
            scale = b.fmul(largest, ir.Constant(f32, 1.0 / 127.0))
            positive = b.fcmp_ordered(">", scale, ir.Constant(f32, 0.0))
            inverse = v.splat(b.select(positive, b.fdiv(ir.Constant(f32, 1.0), scale), ir.Constant(f32, 0.0)))
            q = [b.fptosi(v.unary("rint", b.fmul(value, inverse)), V8I) for value in x]
            codes.append(v.join(*q))
            scales.append(scale)
            total = v.sum_int(b.add(*q))
            sums.append(b.fmul(b.sitofp(total, f32), scale))
            less.append(b.mul(total, ir.Constant(i32, -64)))
        codes = b.trunc(v.join(*codes), vector(i8, 32))
        v.store(codes, b.gep(group, [b.mul(index, ir.Constant(i64, 32))]))
        at = b.gep(group, [b.mul(index, ir.Constant(i64, 8))])
        for k in range(4):
            v.store(v.slice(codes, 8 * k, 8), v.at(at, CODES[TURNED] + 64 * k))
            v.store(v.pick(codes, range(k, 32, 4)), v.at(at, CODES[COMBED] + 64 * k))
        v.store(v.gather(less), v.at(at, LESS))
        v.store(v.gather(scales), v.at(at, SCALES))
        v.store(v.gather(sums), v.at(at, SUMS))
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


# step: as above of rows that consist of parts, each of which begins a group: 2 blocks per part, 5 bytes per output part, 6 parts


@export
def quantize_parts(step, thread, threads):
    """Each thread takes the columns that it also takes as rows of a linear step."""
    blocks, parts, out_stride = load_i64(step + 16), load_i64(step + 48), load_i64(step + 40)
    columns = blocks * parts * 32
    first, last = share(columns, thread, threads) >> 5, share(columns, thread + 1, threads) >> 5
    for row in range(load_i64(load_i64(step + 24))):
        x = load_i64(step) + row * load_i64(step + 32)
        for k in range(first, last):
            part = k // blocks
            block = k - part * blocks
            out = load_i64(step + 8) + (row * parts + part) * out_stride
            quantize_block(x + 128 * k, out + (block >> 3) * QUANTIZED_GROUP, block & 7)
    return 0
