"""Reads one byte of every stretch of memory, so that the system maps a file's pages before they are needed.

Each first read makes the system map the pages around it that are in the page cache, and begin to read those that are not.
Called on a thread of its own by reflex/gguf/ahead.py.
"""

from ..export import export
from ..intrinsics import atomic_load, load_i64, load_u8

STRETCH = 1 << 16  # bytes that Linux maps around a fault (fault_around_bytes)


@export
def touch(ranges, count, stop):
    """Touch `count` ranges, int64 pairs (address, bytes) at `ranges`, until the int64 at `stop` is not 0; returns a sum."""
    total = 0
    for i in range(count):
        at = load_i64(ranges + 16 * i)
        end = at + load_i64(ranges + 16 * i + 8)
        while at < end and atomic_load(stop) == 0:
            total += load_u8(at)
            at = (at & -STRETCH) + STRETCH
    return total
