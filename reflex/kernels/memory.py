"""The `memory` that block formats are unpacked from inside host kernels: accessors over int64 addresses, as LLVM code.

`reflex.quant.plain.Memory` says what each name means. Used by kernel files as `unpack(memory)`; never at run time.
Tables become constants of the object, beside the code that reads them, so a kernel needs no pointer to them.
"""

from hashlib import sha256

from llvmlite import ir
from numba.extending import intrinsic

from .export import helper
from .intrinsics import F32, I64
from .intrinsics import f16 as half
from .intrinsics import f32 as single
from .intrinsics import i8 as byte
from .intrinsics import i16 as word
from .intrinsics import i32 as dword
from .intrinsics import i64 as quad

function = helper


@intrinsic
def float32(typingctx, value):
    """An integer of at most 32 bits as float32; 32 because vector units convert those fastest."""

    def codegen(context, builder, signature, arguments):
        return builder.sitofp(builder.trunc(arguments[0], dword), single)

    return F32(I64), codegen


@intrinsic
def half_of_bits(typingctx, bits):
    def codegen(context, builder, signature, arguments):
        return builder.fpext(builder.bitcast(builder.trunc(arguments[0], word), half), single)

    return F32(I64), codegen


def _narrowed(name, kind, conversion):
    """Load a number of 64 bits and round it to float32."""

    def codegen(context, builder, signature, arguments):
        value = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
        return getattr(builder, conversion)(value, single)

    def typing(typingctx, address):
        return F32(I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


f64 = _narrowed("f64", ir.DoubleType(), "fptrunc")
i64 = _narrowed("i64", quad, "sitofp")


def table(data):
    """Function index -> signed byte `index` of `data`; the bytes live in the object's constants. No bounds check."""
    name = f"table_{sha256(data).hexdigest()[:16]}"
    kind = ir.ArrayType(byte, len(data))

    def codegen(context, builder, signature, arguments):
        constant = builder.module.globals.get(name)
        if constant is None:
            constant = ir.GlobalVariable(builder.module, kind, name)
            constant.initializer = ir.Constant(kind, bytearray(data))
            constant.global_constant = constant.unnamed_addr = True
            constant.linkage = "internal"
        zero = ir.Constant(quad, 0)
        return builder.sext(builder.load(builder.gep(constant, [zero, arguments[0]], inbounds=True), align=1), quad)

    def typing(typingctx, index):
        return I64(I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)
