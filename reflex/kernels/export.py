"""How a kernel file declares what it gives: `@export` for entry points, `@inline` and `@helper` for what they call.

All entry points take and return 64-bit integers (addresses are integers); that is the whole calling convention of
the blob, so the run time needs no signatures. Nothing here may need the Python C API or libm: the linker refuses it.
"""

from numba import njit

EXPORTS = {}  # name -> plain function, in order of declaration; one build process fills it file by file

# Reductions may be reordered and multiplied-added in one step; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}

_OPTIONS = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

inline = njit(inline="always", **_OPTIONS)  # pasted into the caller before type inference
helper = njit(**_OPTIONS)  # a function of its own; LLVM decides about inlining
fast_helper = njit(fastmath=FAST, **_OPTIONS)


def export(function=None, *, fast=False, name=None):
    """Register an entry point under its own name (or `name`). `fast` allows reordered float arithmetic."""

    def register(f):
        symbol = name or f.__name__
        if symbol in EXPORTS:
            raise ValueError(f"kernel {symbol} is declared twice")
        EXPORTS[symbol] = (f, fast)
        return f

    return register(function) if function is not None else register
