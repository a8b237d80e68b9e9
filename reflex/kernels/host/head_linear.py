"""A matrix for every head (ops/head_linear.py): the linear kernels, called head by head, on input as they take it.

A thread takes whole heads and quantizes their inputs itself, so a result is bit for bit the same whatever the number of threads and
of rows. Transposed matrices multiply float32.
"""

from ..arrays import array_copy, array_map
from ..export import export, helper
from ..intrinsics import call3, load_f32, load_i64, store_64, store_f32, to_float

_plus_scaled = array_map("_plus_scaled", 2, 1, lambda v, x, s: v.fma(x[1], s[0], x[0]))

# Parameters, int64 at byte offsets: first the operands of a linear step (kernels/linear.py), whose matrix, input, output and
# scratch each head sets; then those of quantize_rows (quantize.py), whose input and output are set too.
WEIGHTS, X, OUT, ROW_COUNT, X_STRIDE, OUT_STRIDE, SCRATCH, SCRATCH_BYTES = (8 * i for i in (0, 2, 3, 7, 9, 10, 11, 12))
ROWS, ROW_BYTES, DECODER, COLUMNS = (8 * i for i in (6, 8, 13, 14))
SOURCE, CODES, BLOCKS, SOURCE_COUNT, SOURCE_STRIDE, CODES_STRIDE = (8 * i for i in range(15, 21))
KERNEL, QUANTIZE, HEADS, HEAD_DIM, OUT_DIM, USED, MADE, MATRIX_BYTES = (8 * i for i in range(21, 29))  # QUANTIZE: 0, or its address


@helper
def copy_rest(p, x, out):
    """What lies behind the dimensions that a matrix reads, of one head in all rows."""
    used, made = load_i64(p + USED), load_i64(p + MADE)
    rest = load_i64(p + HEAD_DIM) - used
    for row in range(load_i64(load_i64(p + ROW_COUNT))):
        array_copy(out + row * load_i64(p + OUT_STRIDE) + 4 * made, x + row * load_i64(p + SOURCE_STRIDE) + 4 * used, rest)
    return 0


# step: 0 weights of the first head, 1 input, 2 output, 3 parameters, 4 room for the operands of every thread, 5 bytes of it, 6 room
# for every thread's quantized rows of a head, 7 bytes of it


@export
def head_linear(step, thread, threads):
    """Each thread takes every threads-th head."""
    p = load_i64(step + 24)
    own = load_i64(step + 32) + thread * load_i64(step + 40)
    for i in range(KERNEL // 8):
        store_64(own + 8 * i, load_i64(p + 8 * i))
    store_64(own + SCRATCH, load_i64(p + SCRATCH) + thread * load_i64(p + SCRATCH_BYTES))
    store_64(own + CODES, load_i64(step + 48) + thread * load_i64(step + 56))
    for k in range((load_i64(p + HEADS) - thread + threads - 1) // threads):
        head = thread + k * threads
        x = load_i64(step + 8) + 4 * load_i64(p + HEAD_DIM) * head
        out = load_i64(step + 16) + 4 * load_i64(p + OUT_DIM) * head
        store_64(own + WEIGHTS, load_i64(step) + load_i64(p + MATRIX_BYTES) * head)
        store_64(own + X, x)
        store_64(own + OUT, out)
        if load_i64(p + QUANTIZE) != 0:
            store_64(own + SOURCE, x)
            call3(load_i64(p + QUANTIZE), own + SOURCE, 0, 1)
            store_64(own + X, load_i64(own + CODES))
        call3(load_i64(p + KERNEL), own, 0, 1)
        copy_rest(p, x, out)
    return 0


@helper
def add_rows(p, weights, x, out, decoded):
    """out[columns] = sum over i of x[i] W[i], for one head in all rows; rows of W are decoded once."""
    columns, rows = load_i64(p + COLUMNS), load_i64(load_i64(p + ROW_COUNT))
    for i in range(load_i64(p + ROWS)):
        call3(load_i64(p + DECODER), weights + i * load_i64(p + ROW_BYTES), decoded, columns)
        for row in range(rows):
            at = out + row * load_i64(p + OUT_STRIDE)
            if i == 0:
                for j in range(columns):
                    store_f32(at + 4 * j, to_float(0))
            _plus_scaled(at, at, decoded, columns, load_f32(x + row * load_i64(p + SOURCE_STRIDE) + 4 * i))
    return 0


@export
def head_linear_transposed(step, thread, threads):
    """As head_linear; the rows of a head's matrix are the columns of the one that multiplies."""
    p = load_i64(step + 24)
    decoded = load_i64(p + SCRATCH) + thread * load_i64(p + SCRATCH_BYTES)
    for k in range((load_i64(p + HEADS) - thread + threads - 1) // threads):
        head = thread + k * threads
        x = load_i64(step + 8) + 4 * load_i64(p + HEAD_DIM) * head
        out = load_i64(step + 16) + 4 * load_i64(p + OUT_DIM) * head
        add_rows(p, load_i64(step) + load_i64(p + MATRIX_BYTES) * head, x, out, decoded)
        copy_rest(p, x, out)
    return 0
