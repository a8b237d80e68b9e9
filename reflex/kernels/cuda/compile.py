"""Numba kernel -> PTX -> cubin, without a GPU. Build side only."""

import importlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from numba import cuda

from . import export

HERE = Path(__file__).parent
NOT_KERNELS = {"__init__", "ptx", "export", "compile", "memory"}


def load_all():
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in NOT_KERNELS:
            importlib.import_module(f"{__package__}.{path.stem}")
    return export.KERNELS


def to_ptx(kernel, capability):
    """PTX text of one kernel with its own name as the symbol."""
    bounds = (kernel.threads, kernel.blocks)
    text, _ = cuda.compile(
        kernel.function, kernel.types(), cc=capability, device=False, abi="numba", output="ptx", fastmath=True, launch_bounds=bounds
    )
    old = re.search(r"\.visible \.entry (\w+)\(", text).group(1)
    return re.sub(r"^\.common \.global .*NumbaEnv.*$\n", "", text.replace(old, kernel.name), flags=re.M)


def ptxas_path():
    found = os.environ.get("PTXAS")
    if found:
        return found
    import site

    for folder in site.getsitepackages():
        path = Path(folder) / "nvidia/cuda_nvcc/bin/ptxas"
        if path.exists():
            return str(path)
    return shutil.which("ptxas")


def merge(texts):
    """One PTX module from several: the header of the first, the bodies of all."""
    head, bodies = "", []
    for text in texts:
        head, body = re.split(r"^\.address_size 64$", text, maxsplit=1, flags=re.M)
        bodies.append(body)
    seen, lines = set(), []
    for line in (head + ".address_size 64\n" + "\n".join(bodies)).split("\n"):
        if line.startswith((".extern .shared", ".global .align 16 .b8 table_")):  # tables of block formats
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines)


def to_cubin(text, arch, options=()):
    """(cubin, ptxas report): registers, shared memory, stack and spills of every kernel are in the report."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = f"{folder}/k.ptx", f"{folder}/k.cubin"
        Path(source).write_text(text)
        done = subprocess.run([ptxas_path(), f"-arch={arch}", "-O3", "-v", *options, source, "-o", out], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return Path(out).read_bytes(), done.stderr


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


if __name__ == "__main__":
    # python -m reflex.kernels.cuda.compile KERNEL ... [--arch 9.0]: registers, stack, spills; SASS where nvdisasm is found
    import sys
    import time

    arch = (9, 0)
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    for a in sys.argv[1:]:
        if a.startswith("--arch="):
            arch = tuple(int(x) for x in a[7:].split("."))
    known = load_all()
    for name in names or list(known):
        for k in [k for n, k in known.items() if n == name or n.startswith(name + "_")]:
            t = time.perf_counter()
            ptx = to_ptx(k, arch)
            t1 = time.perf_counter()
            cubin, report = to_cubin(ptx, "sm_%d%d" % arch)
            print(k.name, statistics(report)[k.name], f"ptx {t1 - t:.1f} s, ptxas {time.perf_counter() - t1:.1f} s, {len(cubin)} bytes")
