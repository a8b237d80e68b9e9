"""Calls of C functions that return an int, by their addresses: the CUDA driver's."""

from llvmlite import ir
from numba.extending import intrinsic

from .intrinsics import I64, i64


def _driver_call(name, arity):
    """Intrinsic: call the int function of `arity` 64-bit arguments at an address; its status as an int64."""

    def codegen(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [i64] * arity).as_pointer()
        return builder.zext(builder.call(builder.inttoptr(arguments[0], kind), arguments[1:]), i64)

    def typing4(typingctx, address, a, b, c, d):
        return I64(*[I64] * 5), codegen

    def typing11(typingctx, address, a, b, c, d, e, f, g, h, i, j, k):
        return I64(*[I64] * 12), codegen

    typing = {4: typing4, 11: typing11}[arity]
    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


call4 = _driver_call("call4", 4)
call11 = _driver_call("call11", 11)
