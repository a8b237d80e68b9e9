"""Numba kernel -> PTX, without a GPU. Build side only.

Numba and NVVM run once per kernel; the PTX of every architecture comes from that one text (see levels.py), then ptxas makes
the cubin. `python -m reflex.kernels.cuda.compile NAME... [--arch=sm_80]` prints registers, stack and spills.
"""

import importlib
import re
import sys
from types import SimpleNamespace

from numba import cuda
from numba.cuda import dispatcher
from numba.cuda.cudadrv import nvrtc, nvvm

from . import export
from .images import stems
from .levels import level_of, marked, module
from .ptxas import statistics, to_cubin, toolkit


def _adapt_numba():
    """Make numba-cuda work without a GPU and with libNVVM, libdevice and ptxas alone: it asks a device what to compile
    functions for, asks NVRTC which architectures exist and looks up every toolkit library to find one file (150 MB more)."""
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(7, 5))
    library = toolkit() / "nvvm/libdevice/libdevice.10.bc"
    nvrtc.get_arch_option = lambda major, minor, arch="": f"compute_{major}{minor}{arch}"
    nvvm.get_libdevice = lambda: str(library)
    nvvm.open_libdevice = library.read_bytes
    compile_ir = nvvm.compile_ir
    nvvm.compile_ir = lambda texts, **options: compile_ir(_callers_first(texts), **options)


def _callers_first(texts):
    """A kernel's LLVM module, then those of its device functions, each after all that call it: NVVM drops a function that
    nothing before it calls. Numba keeps them in a set, so this also makes the result reproducible."""
    home = {name: text for text in texts for name in re.findall(r'^define .*?@"?([^"(]+)"?\(', text, re.M)}
    order = {}

    def visit(text):
        if text not in order:
            order[text] = None  # its place among those being visited; it is put behind its callees below
            for name in re.findall(r'^declare .*?@"?([^"(]+)"?\(', text, re.M):
                if name in home:
                    visit(home[name])
            del order[text]
            order[text] = None

    visit(texts[0])
    return list(reversed(order))


_adapt_numba()


def kernels_of(stem):
    """The kernels that one kernel file declares."""
    importlib.import_module(f"{__package__}.{stem}")
    return [k for k in export.KERNELS.values() if k.function.__module__ == f"{__package__}.{stem}"]


def load_all():
    for stem in stems():
        importlib.import_module(f"{__package__}.{stem}")
    return export.KERNELS


def to_ptx(kernel):
    """The body of one kernel for all its architectures: everything after the header, under the kernel's own name."""
    blocks = kernel.blocks if isinstance(kernel.blocks, dict) else {0: kernel.blocks}
    text, _ = cuda.compile(
        kernel.function, kernel.types(), cc=(kernel.since // 10, kernel.since % 10), device=False, abi="numba", output="ptx",
        fastmath=True, launch_bounds=(kernel.threads, max(blocks.values())),
    )  # fmt: skip
    symbol = re.search(r"\.visible \.entry (\w+)\(", text).group(1)
    text = re.sub(r"^\.common \.global .*NumbaEnv.*$\n", "", text.replace(symbol, kernel.name), flags=re.M)
    body = text.split(".address_size 64\n", 1)[1]
    if len(blocks) > 1:
        variants = marked("minnctapersm", {level: f".minnctapersm {count}" for level, count in blocks.items()})
        body = re.sub(r"^[ \t]*\.minnctapersm \d+[ \t]*$", variants, body, count=1, flags=re.M)
    body = re.sub(r"(table_\w+)\$\d+", r"\1", body)  # NVVM numbers tables that several functions have
    # Numba numbers shared arrays per process: number them per kernel, so that the text does not depend on its company.
    arrays = {}
    body = re.sub(r"_cudapy_(\w)mem_\d+", lambda m: arrays.setdefault(m.group(), f"{kernel.name}_{m.group(1)}{len(arrays)}"), body)
    for symbol in {name for pair in re.findall(r"^\.(?:global|const) .*?(\w+)\[|^\.func .*?(__\w+)", body, re.M) for name in pair}:
        if symbol and not symbol.startswith("table_"):  # of the mathematics library: each kernel has its own
            body = re.sub(rf"\b{symbol}\b", f"{kernel.name}_{symbol}", body)
    return body


def facts_of(stem):
    """What images need to know of one kernel file: [name, alone, threads, letters, since, before, PTX body] of each kernel."""
    return [[k.name, k.alone, k.threads, k.signature, k.since, k.before, to_ptx(k)] for k in kernels_of(stem)]


def report(names, arch):
    """Print what ptxas says of the named kernels (all without names; a file's name gives all of its kernels)."""
    known = load_all()
    for name, kernel in known.items():
        wanted = not names or name in names or kernel.function.__module__.rsplit(".", 1)[1] in names
        if wanted and kernel.since <= level_of(arch) < kernel.before:
            cubin, text = to_cubin(module([to_ptx(kernel)], arch), arch)
            print(f"{name} {arch}: {statistics(text)[name]} {len(cubin)} bytes")


if __name__ == "__main__":
    chosen = [a.removeprefix("--arch=") for a in sys.argv[1:] if a.startswith("--arch=")] or ["sm_90"]
    for one in chosen:
        report([a for a in sys.argv[1:] if not a.startswith("--")], one)
