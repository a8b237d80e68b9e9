"""Launching chains of CUDA kernels: one call queues hundreds of launches, each a driver call without Python between.

A row is int64[10]: the driver's CUlaunchConfig in the first 7 words (grid x y z and block x y z as int32, bytes of dynamic
shared memory, stream, address and number of attributes), then the kernel handle, the byte offset of its first parameter
cell and their number. A row with handle 0 is a copy: cells target, source, bytes.
"""

from ..export import export
from ..foreign import call4, call11
from ..intrinsics import load_i64, load_u32, shift_right, store_64

ROW_BYTES = 80
CONFIGURATION, HANDLE, CELLS, COUNT, STREAM, SHARED = 0, 56, 64, 72, 32, 24


@export
def launch_rows(table, first, last, cells, pointers, launch, extended, copy):
    """Queue rows [first, last); -1, or row << 32 | status of the first that failed.

    `cells`: base of the parameter cells. `pointers`: room for as many addresses as a kernel has parameters. `launch`: address
    of cuLaunchKernelEx, or of cuLaunchKernel where `extended` is 0. `copy`: address of cuMemcpyAsync.
    """
    for i in range(first, last):
        row = table + i * ROW_BYTES
        handle = load_i64(row + HANDLE)
        values = cells + load_i64(row + CELLS)
        if handle == 0:
            status = call4(copy, load_i64(values), load_i64(values + 8), load_i64(values + 16), load_i64(row + STREAM))
        else:
            for k in range(load_i64(row + COUNT)):
                store_64(pointers + 8 * k, values + 8 * k)
            if extended != 0:
                status = call4(launch, row, handle, pointers, 0)
            else:
                shared, stream = load_u32(row + SHARED), load_i64(row + STREAM)
                status = call11(
                    launch, handle, load_u32(row), load_u32(row + 4), load_u32(row + 8), load_u32(row + 12), load_u32(row + 16),
                    load_u32(row + 20), shared, stream, pointers, 0,
                )  # fmt: skip
        if status != 0:
            return i << 32 | status
    return -1


@export
def rebase(cells, count, tag, base):
    """Turn every cell tag << 48 | offset into base + offset; returns how many there were."""
    found = 0
    for i in range(count):
        value = load_i64(cells + 8 * i)
        if shift_right(value, 48) == tag:
            store_64(cells + 8 * i, base + (value & 0xFFFFFFFFFFFF))
            found += 1
    return found
