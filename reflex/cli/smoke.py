"""Run one precompiled kernel end to end and show the cold-start phases.

Proves that the cache is whole, that its code runs on this CPU and, where there is a CUDA device, on that, and that memory
crosses correctly; needs no model.
"""

from .. import native
from ..backends import choice
from ..errors import InvalidInputError, KernelCacheError
from .front import SHOWN

PARAMETERS = (
    ("--count", "int", 4096, "How many numbers the CPU's kernel works on."),
    ("--device", "text", "", "Which GPU: its number, or a UUID (GPU-..., MIG-...); empty takes the first if any, `none` none."),
    *SHOWN,
)


def run(out, count, device):
    """Exit code 0 when the kernels' results are right; KernelCacheError or DeviceError otherwise."""
    if not 1 <= count <= 1 << 24:
        raise InvalidInputError("--count is out of range", "1 to 16777216", count)
    trial = _begin(device)
    out.mark("imports")
    library = native.library()
    out.mark("kernels")
    found = _sum(library, count)
    out.mark("kernel run")
    facts = {"level": library.level, "kernels": len(library.names()), "sum": found, "device": None}
    if trial is not None:
        from ..backends.cuda.trial import finish

        facts["device"], marks = finish(trial)
        out.beside("device thread", marks)
        out.mark("device")
    if out.json:
        out.record("result", {"command": "smoke", "backend": "cuda" if trial else "cpu", **facts})
        return 0
    out.text(f"ok: {library.level}, {facts['kernels']} kernels and tables, sum of {count} numbers = {found}\n")
    if trial is not None:
        from ..backends.cuda.device import describe

        out.text(f"ok: {describe(facts['device'])}\n")
    return 0


def _begin(device):
    """The trial of the device on its way, None where there is none to try."""
    if device == "none" or not (device or choice.gpu_shown()):
        return None
    from ..backends.cuda.trial import begin

    return begin(device)


def _sum(library, count):
    source, target = native.alloc(8 * count, "smoke input"), native.alloc(8 * count, "smoke output")
    numbers = native.view(source.address, count, "q")
    for i in range(count):
        numbers[i] = i
    found, expected = library.smoke(source.address, target.address, count), 2 * count * (count - 1)
    last = native.view(target.address, count, "q")[count - 1]
    if found != expected or last != 4 * (count - 1):
        raise KernelCacheError("the smoke kernel computed a wrong sum", expected, found, library.path, native.REPAIR)
    return found
