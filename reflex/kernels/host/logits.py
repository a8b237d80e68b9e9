"""What is read off a row of logits: log-probabilities, the best token, a sampled token."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..arrays import _chunks, array_max
from ..export import export, helper
from ..intrinsics import (
    F64,
    I64,
    bits_of_float,
    f32,
    f64,
    float_of_bits,
    load_f32,
    load_f64,
    load_i64,
    load_u32,
    store_32,
    store_64,
    store_f64,
    to_float,
    unsigned_less,
)
from ..vector import LANES, V8F, Vectors, vector


@intrinsic
def sum_exponentials(typingctx, x, count, shift):
    """Sum of e^(x[i] - shift) in float64."""

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        source = v.pointer(arguments[0])
        wide, narrow = v.cell(v.const(vector(f64), 0.0)), v.cell(v.const(vector(f64, 1), 0.0))

        def body(offset, lanes):
            value = v.load(builder.gep(source, [offset]), vector(f32, lanes))
            e = v.exp(builder.fsub(value, v.splat(arguments[2], lanes)))
            cell = wide if lanes == LANES else narrow
            builder.store(builder.fadd(builder.load(cell), builder.fpext(e, vector(f64, lanes))), cell)

        _chunks(v, arguments[1], body)
        rest = builder.extract_element(builder.load(narrow), ir.Constant(ir.IntType(32), 0))
        return builder.fadd(v.sum(builder.load(wide)), rest)

    return F64(I64, I64, types.float32), codegen


LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # fdlibm e_log.c


@helper
def logarithm(bits):
    """Natural logarithm of the positive, normal float64 with these bits: 2^k m, log m = 2 atanh((m - 1)/(m + 1))."""
    exponent = (bits >> 52) - 1023
    store = bits & 0xFFFFFFFFFFFFF | 0x3FF0000000000000
    return exponent, store


@export
def logprobs(logits, count, ids, wanted, out, scratch):
    """out[i] (float64) = logits[ids[i]] - log sum e^logits; ids are int64 within range; scratch holds 8 bytes."""
    top = array_max(logits, count)
    store_f64(scratch, sum_exponentials(logits, count, top))
    exponent, mantissa = logarithm(load_i64(scratch))
    store_64(scratch, mantissa)
    m = load_f64(scratch)
    if m > 1.4142135623730951:
        m *= 0.5
        exponent += 1
    t = (m - 1.0) / (m + 1.0)
    z = t * t
    series = 0.0
    for k in range(12, -1, -1):
        series = series * z + 1.0 / (2 * k + 1)
    total = exponent * LN2_HIGH + (exponent * LN2_LOW + 2.0 * t * series)
    for i in range(wanted):
        store_f64(out + 8 * i, (load_f32(logits + 4 * load_i64(ids + 8 * i)) - top) - total)
    return 0


@export
def argmax(logits, count):
    """Index of the largest logit, the lowest on ties."""
    top = array_max(logits, count)
    for i in range(count):
        if load_f32(logits + 4 * i) == top:
            return i
    return -1


@helper
def sortable(value):
    """An unsigned 32-bit key that orders as the float does."""
    bits = bits_of_float(value)
    return bits ^ 0xFFFFFFFF if bits & 0x80000000 else bits | 0x80000000


@helper
def unsortable(key):
    return float_of_bits(key ^ 0x80000000 if key & 0x80000000 else key ^ 0xFFFFFFFF)


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


@export
def rank(logits, count, wanted, out, heap):
    """The `wanted` most likely token ids (uint32) in order, lower id first on ties; heap holds 8 x count bytes."""
    for i in range(count):
        store_64(heap + 8 * i, sortable(load_f32(logits + 4 * i)) << 32 | (0xFFFFFFFF - i))
    for k in range(count // 2):
        sift(heap, count // 2 - 1 - k, count)
    left = count
    for k in range(min(wanted, count)):
        store_32(out + 4 * k, 0xFFFFFFFF - (load_i64(heap) & 0xFFFFFFFF))
        left -= 1
        store_64(heap, load_i64(heap + 8 * left))
        sift(heap, 0, left)
    return min(wanted, count)
