"""The compiled CPU levels that this machine can run, as a fixture and one by one."""

import os

from reflex import native

GATHERING = " gathering"  # of a level: with the kernels for processors that gather fast, on any that can run them
LEVELS = [v for v in native.usable_levels() if os.path.exists(f"{native.cache_folder()}/host-{v}.bin")]
LEVELS += [v + GATHERING for v in LEVELS if v == "x86-64-v4"]


def load(level):
    name = level.removesuffix(GATHERING)
    library = native.load(f"{native.cache_folder()}/host-{name}.bin", name)
    library.gathers = name != level
    return library
