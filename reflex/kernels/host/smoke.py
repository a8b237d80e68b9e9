"""The smallest kernel that proves the whole path: it reads memory, writes memory and returns a number Python can check."""

from ..export import export
from ..intrinsics import load_i64, store_64


@export
def smoke(source, target, count):
    """target[i] = 3 * source[i] + i for `count` int64; returns the sum of target."""
    total = 0
    for i in range(count):
        value = 3 * load_i64(source + 8 * i) + i
        store_64(target + 8 * i, value)
        total += value
    return total
