"""In a source tree: whether the compiled kernels are those of the kernel sources beside them.

precompile.py writes `cache/sources` and `cache/sources-cuda`, a line for every source file of the host's or a GPU's kernels below
reflex/kernels: checksum, bytes, time of change in ns, path. A file whose size and time are still those is not read. What is
installed has neither sources nor a list. Called by native.py when kernels are opened that do not lie in the package itself.
"""

from posix import O_CLOEXEC, O_RDONLY, stat
from posix import close as _close
from posix import open as _open
from posix import read as _read

from . import native
from .errors import KernelCacheError

NAMES = {"host": "sources", "cuda": "sources-cuda"}


def line(root, name):
    """What the list says of a file now."""
    status = stat(f"{root}/{name}")
    return f"{native.checksum_of(_bytes(f'{root}/{name}'))} {status.st_size} {status.st_mtime_ns} {name}\n"


def refuse_stale(folder, kind):
    """KernelCacheError where a source is another than the one that the kernels of a kind (NAMES) in the cache `folder` were
    compiled from. None where there are no sources."""
    root = folder.rpartition("/")[0]
    try:
        stat(f"{root}/reflex/kernels")
    except OSError:
        return
    try:
        lines = _bytes(f"{folder}/{NAMES[kind]}").decode("utf-8", "replace").split("\n")
    except OSError as error:
        expected, found = f"a list of their sources, the file {NAMES[kind]}", error.strerror
        raise KernelCacheError("the compiled kernels are of an older version", expected, found, folder, native.REPAIR) from None
    changed = [text[3] for text in (text.split(" ", 3) for text in lines) if len(text) == 4 and _changed(root, *text)]
    if changed:
        more = f" (and of {len(changed) - 1} more files)" if changed[1:] else ""
        expected, found = f"kernels of {changed[0]} as it is now", f"those of another version{more}"
        raise KernelCacheError("the compiled kernels are not those of the sources", expected, found, folder, native.REPAIR)


def _changed(root, checksum, size, time, name):
    path = f"{root}/{name}"
    try:
        status = stat(path)
        same = status.st_size == int(size)
        return not same or (status.st_mtime_ns != int(time) and native.checksum_of(_bytes(path)) != checksum)
    except (OSError, ValueError):
        return True


def _bytes(path):
    descriptor = _open(path, O_RDONLY | O_CLOEXEC)
    try:
        parts = []
        while part := _read(descriptor, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        _close(descriptor)
