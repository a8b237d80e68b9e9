"""How a CUDA kernel file declares what it gives: `@kernel` for entry points, `@device` for what they call.

A signature has one letter per parameter: F U I H B L D are pointers to float32, uint32, int32, uint16, uint8, int64,
float64; f i u l d are float32, int32, uint32, int64, float64 scalars. Numba arrays would cost seven parameters each.
"""

from numba import cuda, types

POINTERS = {
    "F": types.float32, "U": types.uint32, "I": types.int32, "H": types.uint16, "B": types.uint8, "L": types.int64,
    "D": types.float64,
}  # fmt: skip
SCALARS = {"f": types.float32, "i": types.int32, "u": types.uint32, "l": types.int64, "d": types.float64}
KERNELS = {}  # name -> Kernel; kernel files fill it when they are imported


class Kernel:
    """An entry point: `threads` per block, and `blocks` per multiprocessor that ptxas must leave registers for; or {lowest level:
    blocks}, where levels (levels.py) differ.

    Built for architectures from `since` up to, not including, `before` (compute capability times ten). `alone`: in an image by
    itself, not with the others of its file.
    """

    def __init__(self, name, alone, function, signature, threads, blocks, since, before):
        self.name = name
        self.alone = alone
        self.function = function
        self.signature = signature
        self.threads = threads
        self.blocks = blocks
        self.since = since
        self.before = before

    def types(self):
        return types.void(*(types.CPointer(POINTERS[c]) if c in POINTERS else SCALARS[c] for c in self.signature))


def kernel(signature, threads, blocks=1, name=None, since=75, before=1000):
    """Register an entry point under its own name; or under `name`, one of variants of which a model uses few."""

    def register(function):
        symbol = name or function.__name__
        if symbol in KERNELS:
            raise ValueError(f"kernel {symbol} is declared twice")
        if len(signature) != function.__code__.co_argcount:
            raise ValueError(f"kernel {symbol} has another number of parameters than its signature")
        KERNELS[symbol] = Kernel(symbol, name is not None, function, signature, threads, blocks, since, before)
        return function

    return register


# What kernels call; both have `py_func` for the emulator. `device` is compiled once and inlined by LLVM, several times faster
# than `pasted`, whose source Numba puts into the caller: for arguments that must stay literals, and other register choices.
device = cuda.jit(device=True, forceinline=True, fastmath=True)
pasted = cuda.jit(device=True, inline="always")
