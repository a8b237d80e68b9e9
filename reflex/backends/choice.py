"""What `--backend` means, before anything of a backend is imported: the command line starts a GPU as soon as it knows.

Called by open.py, the front and whoever wants to know whether there is a GPU to ask for.
"""

from posix import stat

from .. import settings
from ..errors import InvalidInputError, closest

BACKENDS = ("auto", "cpu", "cuda", "reference")
NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")  # where a CUDA driver lies: Linux, WSL, Tegra


def resolve(name):
    """The backend that `name` means; `auto` is cuda where the machine shows a GPU, until that turns out to be unusable."""
    if name == "auto":
        return "cuda" if gpu_shown() else "cpu"
    if name not in BACKENDS:
        remedy = f"did you mean {closest(str(name), BACKENDS, 1)}?"
        raise InvalidInputError("no such backend", ", ".join(BACKENDS), repr(name), "--backend", remedy)
    return name


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def memory_size(text, where):
    """Bytes that a number, or a text like 512M, 8G or 1.5GiB, means; 0 for an empty text."""
    if text == "":
        return 0
    word = str(text).strip().upper().removesuffix("B").removesuffix("I")
    number, unit = (word[:-1], word[-1:]) if word[-1:] in UNITS else (word, "")
    try:
        size = int(float(number) * UNITS[unit])
    except (ValueError, OverflowError, KeyError):
        size = 0
    if not 0 < size < 1 << 60:
        raise InvalidInputError("this is no amount of memory", "bytes, or a number with K, M, G or T", repr(text), where)
    return size


def gpu_shown():
    """Whether this machine seems to have a CUDA device that is not hidden: cheap, touches no driver, can be wrong."""
    return not settings.devices_hidden() and any(map(_exists, NODES))


def _exists(path):
    try:
        stat(path)
        return True
    except OSError:
        return False
