"""What a run without a GPU needs: the stub driver built with `cc`, and kernel files in the cache's format that it accepts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from reflex import native

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def build(folder):
    """Compile the stub into `folder` and return its path; None where there is no C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    path = Path(folder) / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, HERE / "stub.c"], check=True)
    return path


def kernel_file(folder, target, kernels=("add FFif 256 1 0 16",), needs=12000, image=b"\x7fELF" + bytes(60)):
    """Write cuda-<target>.bin; `kernels`: lines of its listing."""
    listing = "".join(f"{line}\n" for line in kernels).encode() + b"\n"
    offset = (len(listing) + 200 + 4095) // 4096 * 4096
    facts = f"RFXCUDA1 {target} {offset} {len(image)} {needs} ".encode()
    body = listing.ljust(offset - len(facts) - 17, b"\0") + image
    path = Path(folder) / f"cuda-{target}.bin"
    path.write_bytes(facts + native.checksum_of(body).encode() + b"\n" + body)
    return path


def environment(stub, log=None, **settings):
    """Environment of a process that finds the stub; settings like FAIL="cuInit:999"."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STUB_", "CUDA_"))}
    variables = {f"STUB_{name}": str(value) for name, value in settings.items()}
    if log is not None:
        variables["STUB_LOG"] = str(log)
    return {**clean, "LD_LIBRARY_PATH": str(Path(stub).parent), "PYTHONPATH": str(ROOT), **variables}


def python(code, env, timeout=60):
    """Run Python source in a process of its own; the finished process."""
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=timeout)
