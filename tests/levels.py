"""The compiled CPU levels that this machine can run, as a fixture and one by one."""

import os

from reflex import native

SECOND = "x86-64-v4"  # level that has second kernels for processors that can more


def _ways():
    """Of the second kernels those that this processor can run; gather instructions are in the level itself."""
    return [way for way in native.WAYS if way == "gathered" or native.WAYS[way] <= native.cpu_flags()]


LEVELS = [v for v in native.usable_levels() if os.path.exists(f"{native.cache_folder()}/host-{v}.bin")]
LEVELS += [f"{SECOND} {way}" for way in _ways() if SECOND in LEVELS]


def load(level):
    name, *ways = level.split()
    library = native.load(f"{native.cache_folder()}/host-{name}.bin", name)
    library.ways = ways
    return library
