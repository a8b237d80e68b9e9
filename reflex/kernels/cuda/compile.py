"""Numba kernel -> PTX -> cubin, without a GPU. Build side only.

Numba and NVVM run once per kernel; the PTX of every architecture comes from that one text (see asm.py), then ptxas makes
the cubin. `python -m reflex.kernels.cuda.compile NAME... [--arch=sm_80]` prints registers, stack and spills.
"""

import importlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from numba import cuda
from numba.cuda.cudadrv import nvrtc, nvvm

from . import export
from .asm import at_level

HERE = Path(__file__).parent
NOT_KERNELS = {"__init__", "asm", "ptx", "export", "compile", "memory"}
TOOLKIT = Path(importlib.util.find_spec("nvidia").submodule_search_locations[0]) / "cuda_nvcc"  # of the nvidia-cuda-nvcc wheel
LEVELS = {"sm_75": 75, "sm_80": 80, "sm_86": 80, "sm_89": 80, "sm_90": 90, "sm_100": 90, "sm_120": 90}  # arch -> feature level
FALLBACK_LEVEL, FALLBACK_VERSION = 80, "7.4"  # of the PTX for what has no cubin; 7.4 is the first with L1::no_allocate
OPTIONS = ("-O3",)


def _only_the_compiler_wheel():
    """Make numba-cuda work with libNVVM, libdevice and ptxas alone: it asks NVRTC which architectures exist and looks up
    every toolkit library to find one file, which would be 150 MB more to download."""
    nvrtc.get_arch_option = lambda major, minor, arch="": f"compute_{major}{minor}{arch}"
    nvvm.get_libdevice = lambda: str(TOOLKIT / "nvvm/libdevice/libdevice.10.bc")
    nvvm.open_libdevice = lambda: (TOOLKIT / "nvvm/libdevice/libdevice.10.bc").read_bytes()


_only_the_compiler_wheel()


def kernels_of(stem):
    """The kernels that one kernel file declares."""
    importlib.import_module(f"{__package__}.{stem}")
    return [k for k in export.KERNELS.values() if k.function.__module__ == f"{__package__}.{stem}"]


def load_all():
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in NOT_KERNELS:
            importlib.import_module(f"{__package__}.{path.stem}")
    return export.KERNELS


# ---- PTX -------------------------------------------------------------------------------------------------


def to_ptx(kernel):
    """The body of one kernel for all its architectures: everything after the header, under the kernel's own name."""
    text, _ = cuda.compile(
        kernel.function, kernel.types(), cc=(kernel.since // 10, kernel.since % 10), device=False, abi="numba", output="ptx",
        fastmath=True, launch_bounds=(kernel.threads, kernel.blocks),
    )  # fmt: skip
    symbol = re.search(r"\.visible \.entry (\w+)\(", text).group(1)
    text = re.sub(r"^\.common \.global .*NumbaEnv.*$\n", "", text.replace(symbol, kernel.name), flags=re.M)
    body = text.split(".address_size 64\n", 1)[1]
    # Numba numbers shared arrays per process: number them per kernel, so that the text does not depend on its company.
    arrays = {}
    body = re.sub(r"_cudapy_(\w)mem_\d+", lambda m: arrays.setdefault(m.group(), f"{kernel.name}_{m.group(1)}{len(arrays)}"), body)
    for symbol in {name for pair in re.findall(r"^\.(?:global|const) .*?(\w+)\[|^\.func .*?(__\w+)", body, re.M) for name in pair}:
        if symbol and not symbol.startswith("table_"):  # of the mathematics library: each kernel has its own
            body = re.sub(rf"\b{symbol}\b", f"{kernel.name}_{symbol}", body)
    return body


def module(bodies, level, version="8.7"):
    """One PTX module of several kernels for a feature level; what they share (tables of block formats) is there once."""
    shared = {}
    for body in bodies:
        shared.update((name, line) for line, name in re.findall(r"^(\.global \.align 16 \.b8 (table_\w+)\[.*\n)", body, re.M))
    bodies = [re.sub(r"^\.global \.align 16 \.b8 table_\w+\[.*\n", "", body, flags=re.M) for body in bodies]
    header = f".version {version}\n.target sm_{level}\n.address_size 64\n"
    return header + "".join(shared[name] for name in sorted(shared)) + at_level("\n".join(bodies), level)


# ---- cubins ----------------------------------------------------------------------------------------------


def to_cubin(text, arch):
    """(cubin, ptxas report) of a PTX module."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        command = [str(TOOLKIT / "bin/ptxas"), f"-arch={arch}", *OPTIONS, "-v", str(source), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return out.read_bytes(), done.stderr


def statistics(report):
    """{kernel: {registers, stack, spills, shared}} from a ptxas report."""
    out = {}
    for m in re.finditer(r"Compiling entry function '(\w+)' for '(\w+)'(.*?)Used (\d+) registers([^\n]*)", report, re.S):
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", m.group(3))
        shared = re.search(r"(\d+) bytes smem", m.group(5))
        out[m.group(1)] = {
            "registers": int(m.group(4)),
            "stack": int(frame.group(1)),
            "spills": int(frame.group(2)) + int(frame.group(3)),
            "shared": int(shared.group(1)) if shared else 0,
        }
    return out


def report(names, arch):
    """Print what ptxas says of the named kernels (all without names; a file's name gives all of its kernels)."""
    known = load_all()
    for name, kernel in known.items():
        wanted = not names or name in names or kernel.function.__module__.rsplit(".", 1)[1] in names
        if wanted and kernel.since <= LEVELS[arch] < kernel.before:
            cubin, text = to_cubin(module([to_ptx(kernel)], LEVELS[arch]), arch)
            print(f"{name} {arch}: {statistics(text)[name]} {len(cubin)} bytes")


if __name__ == "__main__":
    chosen = [a.removeprefix("--arch=") for a in sys.argv[1:] if a.startswith("--arch=")] or ["sm_90"]
    for one in chosen:
        report([a for a in sys.argv[1:] if not a.startswith("--")], one)
