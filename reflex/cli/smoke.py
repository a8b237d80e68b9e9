"""Run one precompiled kernel end to end and show the cold-start phases.

Proves that the cache is whole, that its code runs on this CPU and that memory crosses correctly; needs no model.
"""

from .. import native
from ..errors import InvalidInputError, KernelCacheError
from .front import SHOWN

PARAMETERS = (("--count", "int", 4096, "How many numbers the kernel works on."), *SHOWN)


def run(out, count):
    """Exit code 0 when the kernel's result is right; KernelCacheError otherwise."""
    if not 1 <= count <= 1 << 24:
        raise InvalidInputError("--count is out of range", "1 to 16777216", count)
    out.mark("imports")
    library = native.library()
    out.mark("kernels")
    source, target = native.alloc(8 * count, "smoke input"), native.alloc(8 * count, "smoke output")
    numbers = native.view(source.address, count, "q")
    for i in range(count):
        numbers[i] = i
    found, expected = library.smoke(source.address, target.address, count), 2 * count * (count - 1)
    last = native.view(target.address, count, "q")[count - 1]
    out.mark("kernel run")
    if found != expected or last != 4 * (count - 1):
        raise KernelCacheError("the smoke kernel computed a wrong sum", expected, found, library.path, native.REPAIR)
    if out.json:
        facts = {"level": library.level, "kernels": len(library.names()), "sum": found}
        out.record("result", {"command": "smoke", "backend": "cpu", **facts})
    else:
        out.text(f"ok: {library.level}, {len(library.names())} kernels and tables, sum of {count} numbers = {found}\n")
    return 0
