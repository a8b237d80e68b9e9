"""The compiled CPU levels that this machine can run, as a fixture and one by one."""

import os

from reflex import native

LEVELS = [v for v in native.usable_levels() if os.path.exists(f"{native.cache_folder()}/host-{v}.bin")]


def load(level):
    return native.load(f"{native.cache_folder()}/host-{level}.bin", level)
