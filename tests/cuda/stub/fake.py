"""What a run without a GPU needs: the stub driver built with `cc`, and kernel files in the cache's format that it accepts."""

import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path

from reflex import native

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def build(folder, name="libcuda.so.1", source="stub.c"):
    """Compile the stub into `folder` and return its path; None where there is no C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    path = Path(folder) / name
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, HERE / source, "-ldl"], check=True)
    return path


def kernel_file(folder, target, kernels=("add 256 16 0 FFif",), image=b"\x7fELF" + bytes(60)):
    """Write cuda-<target>.bin with one image; `kernels`: name, threads, registers, shared bytes and letters of each."""
    image = lzma.compress(image) if target == "ptx" else image
    start = 4096 * (1 + sum(map(len, kernels)) // 2048)
    at = f" {start} {len(image)} 0 {native.checksum_of(image)} "
    listing = "".join(f"{line.replace(' ', at, 1)}\n" for line in sorted(kernels)).encode() + b"\n"
    first = f"RFXCUDA3 {target} {start} {len(image)} {native.checksum_of(listing)}\n".encode()
    path = Path(folder) / f"cuda-{target}.bin"
    path.write_bytes((first + listing).ljust(start, b"\0") + image)
    return path


def environment(stub, log=None, **settings):
    """Environment of a process that finds the stub; settings like FAIL="cuInit:999"."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STUB_", "CUDA_"))}
    variables = {f"STUB_{name}": str(value) for name, value in settings.items()}
    if log is not None:
        variables["STUB_LOG"] = str(log)
    return {**clean, "LD_LIBRARY_PATH": str(Path(stub).parent), "PYTHONPATH": str(ROOT), **variables}


def python(code, env, timeout=300):
    """Run Python source in a process of its own; the finished process."""
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=timeout)
