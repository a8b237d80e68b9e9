"""What the kernels that read logits share: exponentials, and a heap of tokens ordered by logit."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .arrays import chunks
from .export import helper
from .intrinsics import F32, F64, I64, bits_of_float, f32, f64, i64, load_f32, load_i64, store_64, unsigned_less
from .vector import LANES, Vectors, vector


@intrinsic
def sum_exponentials(typingctx, x, count, shift):
    """Sum of e^(x[i] - shift) over float32 x, in float64."""

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        source = v.pointer(arguments[0])
        wide, narrow = v.cell(v.const(vector(f64), 0.0)), v.cell(v.const(vector(f64, 1), 0.0))

        def body(offset, lanes):
            value = v.load(builder.gep(source, [offset]), vector(f32, lanes))
            e = v.exp(builder.fsub(value, v.splat(arguments[2], lanes)))
            cell = wide if lanes == LANES else narrow
            builder.store(builder.fadd(builder.load(cell), builder.fpext(e, vector(f64, lanes))), cell)

        chunks(v, arguments[1], body)
        rest = builder.extract_element(builder.load(narrow), ir.Constant(ir.IntType(32), 0))
        return builder.fadd(v.sum(builder.load(wide)), rest)

    return F64(I64, I64, types.float32), codegen


@intrinsic
def exponential(typingctx, x):
    """e^x of one float32."""

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        return builder.extract_element(v.exp(v.splat(arguments[0], 1)), ir.Constant(ir.IntType(32), 0))

    return F32(F32), codegen


LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # fdlibm e_log.c


def _bits(name, kind, result, argument):
    """Intrinsic: the same 64 bits as another type."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], kind)

    def typing(typingctx, value):
        return result(argument), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


bits_of_double = _bits("bits_of_double", i64, I64, F64)
double_of_bits = _bits("double_of_bits", f64, F64, I64)


@helper
def logarithm(x):
    """ln x of a positive normal float64: x = 2^k m with m in [sqrt 1/2, sqrt 2), ln m = 2 atanh((m - 1)/(m + 1)) by its series."""
    bits = bits_of_double(x)
    exponent = (bits >> 52) - 1023
    m = double_of_bits(bits & 0xFFFFFFFFFFFFF | 0x3FF0000000000000)
    if m > 1.4142135623730951:
        m *= 0.5
        exponent += 1
    t = (m - 1.0) / (m + 1.0)
    z = t * t
    series = 0.0
    for k in range(12, -1, -1):
        series = series * z + 1.0 / (2 * k + 1)
    return exponent * LN2_HIGH + (exponent * LN2_LOW + 2.0 * t * series)


@helper
def sortable(value):
    """An unsigned 32-bit key that orders as the float does."""
    bits = bits_of_float(value)
    return bits ^ 0xFFFFFFFF if bits & 0x80000000 else bits | 0x80000000


@helper
def sift(heap, at, count):
    """Restore a max-heap of unsigned 64-bit keys below `at`."""
    key = load_i64(heap + 8 * at)
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and unsigned_less(load_i64(heap + 8 * child), load_i64(heap + 8 * child + 8)):
            child += 1
        if not unsigned_less(key, load_i64(heap + 8 * child)):
            break
        store_64(heap + 8 * at, load_i64(heap + 8 * child))
        at = child
    store_64(heap + 8 * at, key)
    return 0


@helper
def heapify(logits, count, heap):
    """A heap of (logit, lower id first) keys over all tokens, 8 bytes each."""
    for i in range(count):
        store_64(heap + 8 * i, sortable(load_f32(logits + 4 * i)) << 32 | (0xFFFFFFFF - i))
    for k in range(count // 2):
        sift(heap, count // 2 - 1 - k, count)
    return 0


@helper
def pop(heap, count):
    """Remove and return the best key of a heap of `count`."""
    best = load_i64(heap)
    store_64(heap, load_i64(heap + 8 * (count - 1)))
    sift(heap, 0, count - 1)
    return best


@helper
def token_of(key):
    return 0xFFFFFFFF - (key & 0xFFFFFFFF)
