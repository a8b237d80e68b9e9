"""PTX -> cubin with the ptxas of the nvidia-cuda-nvcc wheel, and what it says about every kernel. Needs no numba."""

import importlib.util
import re
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

PACKAGE = "nvidia-cuda-nvcc-cu12"
BLOCKS = re.compile(r"\.minnctapersm (\d+)")


def toolkit():
    """The folder of the wheel: libNVVM, libdevice, ptxas."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found else ():
        if (Path(folder) / "cuda_nvcc/bin/ptxas").exists():
            return Path(folder) / "cuda_nvcc"
    raise FileNotFoundError(f"ptxas is not installed: pip install {PACKAGE}")


def compiler():
    """What compiles CUDA kernels; another one gives other bytes."""
    return " ".join(f"{name} {version(name)}" for name in ("numba-cuda", "numba", "llvmlite", PACKAGE))


def to_cubin(text, arch):
    """(cubin, ptxas report) of a PTX module. Kernels that would spill registers get those of a block less per multiprocessor."""
    data, report = assemble(text, arch)
    if any(found["spills"] for found in statistics(report).values()):
        fewer = BLOCKS.sub(lambda match: f".minnctapersm {max(1, int(match.group(1)) - 1)}", text)
        if fewer != text:
            return to_cubin(fewer, arch)
    return data, report


def assemble(text, arch):
    """The same, as the module asks for it."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        command = [str(toolkit() / "bin/ptxas"), f"-arch={arch}", "-O3", "-v", str(source), "-o", str(out)]
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
