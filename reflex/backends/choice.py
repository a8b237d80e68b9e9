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


def gpu_shown():
    """Whether this machine seems to have a CUDA device that is not hidden: cheap, touches no driver, can be wrong."""
    return not settings.devices_hidden() and any(map(_exists, NODES))


def _exists(path):
    try:
        stat(path)
        return True
    except OSError:
        return False
