"""System calls of Linux from compiled code, without a C library."""

from llvmlite import ir
from numba.extending import intrinsic

from .intrinsics import I64, i64
from .target import current

# Where the result comes and the number and the arguments go, on x86-64.
PLACES = "rax", "rax", "rdi", "rsi", "rdx", "r10"
# A function of number and four arguments, on ARM, as code: the LLVM of llvmlite assembles text for the machine it runs on alone.
# mov x8, x0; mov x0, x1; mov x1, x2; mov x2, x3; mov x3, x4; svc #0; ret. All of a blob, constants too, may be executed.
ARM_CODE = 0xAA0003E8, 0xAA0103E0, 0xAA0203E1, 0xAA0303E2, 0xAA0403E3, 0xD4000001, 0xD65F03C0
ARM_NAME = "system call"


def on_arm():
    return current().machine == "aarch64"


def _call(builder, arguments):
    if on_arm():
        return _call_code(builder, [*arguments, i64(0)][:5])
    result, *given = PLACES[: len(arguments) + 1]
    places = ",".join((f"={{{result}}}", *[f"{{{name}}}" for name in given], "~{memory},~{rcx},~{r11}"))
    kind = ir.FunctionType(i64, [i64] * len(arguments))
    return builder.call(ir.InlineAsm(kind, "syscall", places, side_effect=True), arguments)


def _call_code(builder, arguments):
    code = builder.module.globals.get(ARM_NAME)
    if code is None:
        words = ir.ArrayType(ir.IntType(32), len(ARM_CODE))
        code = ir.GlobalVariable(builder.module, words, ARM_NAME)
        code.initializer, code.global_constant, code.linkage, code.align = ir.Constant(words, ARM_CODE), True, "internal", 16
    kind = ir.FunctionType(i64, [i64] * len(arguments))
    return builder.call(builder.bitcast(code, kind.as_pointer()), arguments)


@intrinsic
def system_call(typingctx, number, a, b, c):
    """A Linux system call with three arguments; returns its result, negative for an error."""
    return I64(I64, I64, I64, I64), lambda context, builder, signature, arguments: _call(builder, arguments)


@intrinsic
def system_call4(typingctx, number, a, b, c, d):
    """The same with four arguments."""
    return I64(I64, I64, I64, I64, I64), lambda context, builder, signature, arguments: _call(builder, arguments)


@intrinsic
def by_machine(typingctx, x86, arm):
    """One of two numbers, by the processor that is compiled for."""
    return I64(I64, I64), lambda context, builder, signature, arguments: arguments[on_arm()]
