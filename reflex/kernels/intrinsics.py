"""Memory, atomics and a few scalar operations for host kernels, as LLVM instructions over int64 addresses."""

from hashlib import sha256

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .target import current

I64 = types.int64
F32 = types.float32
F64 = types.float64

i8, i16, i32, i64 = (ir.IntType(n) for n in (8, 16, 32, 64))
f16, f32, f64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()


def declare(builder, name, result, arguments):
    """An LLVM intrinsic function, declared once per module."""
    module = builder.module
    known = module.globals.get(name)
    return known or ir.Function(module, ir.FunctionType(result, arguments), name)


def constant(builder, data):
    """Address of bytes among the object's constants, beside the code that reads them: an array's global variable."""
    name = f"table_{sha256(data).hexdigest()[:16]}"
    known = builder.module.globals.get(name)
    if known is None:
        kind = ir.ArrayType(i8, len(data))
        known = ir.GlobalVariable(builder.module, kind, name)
        known.initializer = ir.Constant(kind, bytearray(data))
        known.global_constant = known.unnamed_addr = True
        known.linkage = "internal"
        known.align = 64
    return known


def has_halves():
    """Whether the target converts half floats by itself; x86 does since F16C, before it LLVM would call a library."""
    return current().machine != "x86_64" or current().avx2


def half_to_single(builder, bits):
    """The float32 value of an i16 that holds a half float."""
    if has_halves():
        return builder.fpext(builder.bitcast(bits, f16), f32)
    wide = builder.zext(bits, i32)
    magnitude = builder.shl(builder.and_(wide, i32(0x7FFF)), i32(13))
    finite = builder.bitcast(builder.fmul(builder.bitcast(magnitude, f32), ir.Constant(f32, 2.0**112)), i32)  # subnormals too
    special = builder.or_(magnitude, i32(0x7F800000))  # infinity and NaN
    chosen = builder.select(builder.icmp_unsigned("<", magnitude, i32(0x7C00 << 13)), finite, special)
    sign = builder.shl(builder.and_(wide, i32(0x8000)), i32(16))
    return builder.bitcast(builder.or_(chosen, sign), f32)


def single_to_half(builder, value):
    """A float32 rounded to half (ties to even), as an i16."""
    if has_halves():
        return builder.bitcast(builder.fptrunc(value, f16), i16)
    bits = builder.bitcast(value, i32)
    magnitude = builder.and_(bits, i32(0x7FFFFFFF))
    odd = builder.and_(builder.lshr(magnitude, i32(13)), i32(1))
    rebased = builder.sub(builder.add(magnitude, builder.add(odd, i32(0xFFF))), i32(112 << 23))
    normal = builder.lshr(rebased, i32(13))  # a carry into exponent 31 is the infinity it should be
    sum_with_half = builder.fadd(builder.bitcast(magnitude, f32), ir.Constant(f32, 0.5))  # its last place is 2**-24
    subnormal = builder.sub(builder.bitcast(sum_with_half, i32), i32(0x3F000000))
    special = builder.select(builder.icmp_unsigned(">", magnitude, i32(0x7F800000)), i32(0x7E00), i32(0x7C00))
    small = builder.select(builder.icmp_unsigned("<", magnitude, i32(0x38800000)), subnormal, normal)
    chosen = builder.select(builder.icmp_unsigned("<", magnitude, i32(0x47800000)), small, special)
    return builder.trunc(builder.or_(chosen, builder.lshr(builder.and_(bits, i32(0x80000000)), i32(16))), i16)


def _loader(name, kind, extend, result):
    def codegen(context, builder, signature, arguments):
        value = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
        return getattr(builder, extend)(value, i64 if result is I64 else f32) if extend else value

    def typing(typingctx, address):
        return result(I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


load_u8 = _loader("load_u8", i8, "zext", I64)
load_i8 = _loader("load_i8", i8, "sext", I64)
load_u16 = _loader("load_u16", i16, "zext", I64)
load_i16 = _loader("load_i16", i16, "sext", I64)
load_u32 = _loader("load_u32", i32, "zext", I64)
load_i32 = _loader("load_i32", i32, "sext", I64)
load_i64 = _loader("load_i64", i64, None, I64)
load_f32 = _loader("load_f32", f32, None, F32)
load_f64 = _loader("load_f64", f64, None, F64)


def _storer(name, kind, narrow, argument):
    def codegen(context, builder, signature, arguments):
        value = builder.trunc(arguments[1], kind) if narrow else arguments[1]
        builder.store(value, builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
        return context.get_dummy_value()

    def typing(typingctx, address, value):
        return types.void(I64, argument), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


store_8 = _storer("store_8", i8, True, I64)
store_16 = _storer("store_16", i16, True, I64)
store_32 = _storer("store_32", i32, True, I64)
store_64 = _storer("store_64", i64, False, I64)
store_f32 = _storer("store_f32", f32, False, F32)
store_f64 = _storer("store_f64", f64, False, F64)


@intrinsic
def store_f16(typingctx, address, value):
    """Round a float32 to half (ties to even) and store it."""

    def codegen(context, builder, signature, arguments):
        builder.store(single_to_half(builder, arguments[1]), builder.inttoptr(arguments[0], i16.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(I64, F32), codegen


@intrinsic
def float_of_bits(typingctx, bits):
    """The float32 whose bit pattern is the low 32 bits of `bits`."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(builder.trunc(arguments[0], i32), f32)

    return F32(I64), codegen


@intrinsic
def bits_of_float(typingctx, value):
    def codegen(context, builder, signature, arguments):
        return builder.zext(builder.bitcast(arguments[0], i32), i64)

    return I64(F32), codegen


def _comparison(name, operator):
    def codegen(context, builder, signature, arguments):
        return builder.icmp_unsigned(operator, arguments[0], arguments[1])

    def typing(typingctx, a, b):
        return types.boolean(I64, I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


unsigned_less = _comparison("unsigned_less", "<")
unsigned_greater = _comparison("unsigned_greater", ">")


@intrinsic
def shift_right(typingctx, value, count):
    """Logical right shift of a 64-bit value."""

    def codegen(context, builder, signature, arguments):
        return builder.lshr(arguments[0], arguments[1])

    return I64(I64, I64), codegen


@intrinsic
def trailing_zeros(typingctx, value):
    """Zero bits below the lowest one; 64 where there is none."""

    def codegen(context, builder, signature, arguments):
        count = declare(builder, "llvm.cttz.i64", i64, [i64, ir.IntType(1)])
        return builder.call(count, [arguments[0], ir.Constant(ir.IntType(1), 0)])

    return I64(I64), codegen


def _float_unary(name, llvm):
    def codegen(context, builder, signature, arguments):
        return builder.call(declare(builder, llvm, f32, [f32]), [arguments[0]])

    def typing(typingctx, value):
        return F32(F32), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


sqrt = _float_unary("sqrt", "llvm.sqrt.f32")
absolute = _float_unary("absolute", "llvm.fabs.f32")
round_even = _float_unary("round_even", "llvm.rint.f32")


@intrinsic
def to_float(typingctx, value):
    """int64 to the nearest float32."""

    def codegen(context, builder, signature, arguments):
        return builder.sitofp(arguments[0], f32)

    return F32(I64), codegen


@intrinsic
def atomic_add(typingctx, address, value):
    """Add to an int64 in memory, sequentially consistent; returns the old value."""

    def codegen(context, builder, signature, arguments):
        return builder.atomic_rmw("add", builder.inttoptr(arguments[0], i64.as_pointer()), arguments[1], "seq_cst")

    return I64(I64, I64), codegen


@intrinsic
def atomic_load(typingctx, address):
    def codegen(context, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], i64.as_pointer()), "acquire", 8)

    return I64(I64), codegen


@intrinsic
def atomic_store(typingctx, address, value):
    def codegen(context, builder, signature, arguments):
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], i64.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(I64, I64), codegen


@intrinsic
def compare_exchange(typingctx, address, expected, value):
    """Store `value` in the int64 at address if it holds `expected`; 1 if it did, else 0."""

    def codegen(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], i64.as_pointer())
        pair = builder.cmpxchg(place, arguments[1], arguments[2], "seq_cst", "seq_cst")
        return builder.zext(builder.extract_value(pair, 1), i64)

    return I64(I64, I64, I64), codegen


@intrinsic
def pause(typingctx):
    """A hint that this is a spin loop; nothing on machines without one."""

    def codegen(context, builder, signature, arguments):
        if current().machine == "x86_64":
            builder.call(declare(builder, "llvm.x86.sse2.pause", ir.VoidType(), []), [])
        return context.get_dummy_value()

    return types.void(), codegen


def _caller(arity):
    def codegen(context, builder, signature, arguments):
        target = ir.FunctionType(i64, [i64] * arity).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], target), arguments[1:])

    return codegen


@intrinsic
def call3(typingctx, address, a, b, c):
    """Call int64 f(int64, int64, int64) at an address: another kernel, or a C function handed in by the run time."""
    return I64(I64, I64, I64, I64), _caller(3)


@intrinsic
def call7(typingctx, address, a, b, c, d, e, f, g):
    """Call an int64 function of seven int64 arguments at an address (libc's `syscall` with its number first)."""
    return I64(I64, I64, I64, I64, I64, I64, I64, I64), _caller(7)
