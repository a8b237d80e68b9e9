"""The `memory` that block formats are unpacked from inside host kernels: accessors over int64 addresses, as LLVM code.

`reflex.quant.plain.Memory` says what each name means. Used by kernel files as `unpack(memory)`; never at run time.
Tables become constants of the object, beside the code that reads them, so a kernel needs no pointer to them.
"""

from hashlib import sha256

from llvmlite import ir
from numba.extending import intrinsic

from .export import helper, inline
from .intrinsics import F32, I64, constant, float_of_bits, half_to_single

function = helper

_I8, _I16, _I32, _I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
_F32, _F64 = ir.FloatType(), ir.DoubleType()


def _loader(name, kind, conversion, result):
    """Read a `kind` at an address. What it reads never changes, so LLVM may reuse it across stores."""
    goal = _I64 if result is I64 else _F32

    def codegen(context, builder, signature, arguments):
        value = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        if conversion == "half":
            return half_to_single(builder, value)
        return getattr(builder, conversion)(value, goal) if conversion else value

    def typing(typingctx, address):
        return result(I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


u8 = _loader("u8", _I8, "zext", I64)
i8 = _loader("i8", _I8, "sext", I64)
u16 = _loader("u16", _I16, "zext", I64)
i16 = _loader("i16", _I16, "sext", I64)
u32 = _loader("u32", _I32, "zext", I64)
i32 = _loader("i32", _I32, "sext", I64)
i64 = _loader("i64", _I64, "sitofp", F32)
f16 = _loader("f16", _I16, "half", F32)
f32 = _loader("f32", _F32, None, F32)
f64 = _loader("f64", _F64, "fptrunc", F32)


@inline
def bf16(address):
    return float_of_bits(u16(address) << 16)


@intrinsic
def float32(typingctx, value):
    """An integer of at most 32 bits as float32; 32 because vector units convert those fastest."""

    def codegen(context, builder, signature, arguments):
        return builder.sitofp(builder.trunc(arguments[0], _I32), _F32)

    return F32(I64), codegen


@intrinsic
def half_of_bits(typingctx, bits):
    def codegen(context, builder, signature, arguments):
        return half_to_single(builder, builder.trunc(arguments[0], _I16))

    return F32(I64), codegen


def table(data):
    """Function index -> signed byte `index` of `data`; the bytes live in the object's constants. No bounds check."""
    name = f"table_{sha256(data).hexdigest()[:16]}"

    def codegen(context, builder, signature, arguments):
        place = builder.gep(constant(builder, data), [ir.Constant(_I64, 0), arguments[0]], inbounds=True)
        return builder.sext(builder.load(place, align=1), _I64)

    def typing(typingctx, index):
        return I64(I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)
