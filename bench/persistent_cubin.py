"""The cubin that bench/persistent_device.py measures: `python bench/persistent_cubin.py OUT [sm_90]`, where the CUDA compilers are.

Holds the product's kernels and the same with clocks in them (`_profiled`), which no product file needs.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from reflex.kernels.cuda import export, persistent
from reflex.kernels.cuda.compile import to_ptx
from reflex.kernels.cuda.levels import module
from reflex.kernels.cuda.ptxas import statistics, to_cubin

SLOTS = {"persistent": (4, 4, 6), "persistent_narrow": (1, 2, 3)}


def main(path, arch="sm_90"):
    for name, slots in SLOTS.items():
        kernel = persistent.persistent(slots, True)
        export.kernel(persistent.SIGNATURE, threads=persistent.THREADS, name=f"{name}_profiled", since=90)(kernel)
    names = [*SLOTS, *(f"{name}_profiled" for name in SLOTS)]
    cubin, report = to_cubin(module([to_ptx(export.KERNELS[name]) for name in names], arch), arch)
    Path(path).write_bytes(cubin)
    for name in names:
        print(name, statistics(report)[name])


if __name__ == "__main__":
    main(*sys.argv[1:])
