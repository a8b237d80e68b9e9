"""System calls of Linux from compiled code, without a C library."""

from llvmlite import ir
from numba.extending import intrinsic

from .intrinsics import I64, i64
from .target import current

# Where the result comes and the number and the arguments go, on ARM and elsewhere.
PLACES = {False: ("rax", "rax", "rdi", "rsi", "rdx", "r10"), True: ("x0", "x8", "x0", "x1", "x2", "x3")}


def on_arm():
    return current().machine == "aarch64"


def _call(builder, arguments):
    result, *given = PLACES[on_arm()][: len(arguments) + 1]
    places = ",".join((f"={{{result}}}", *[f"{{{name}}}" for name in given], "~{memory}"))
    if not on_arm():
        places += ",~{rcx},~{r11}"
    kind = ir.FunctionType(i64, [i64] * len(arguments))
    return builder.call(ir.InlineAsm(kind, "svc #0" if on_arm() else "syscall", places, side_effect=True), arguments)


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
