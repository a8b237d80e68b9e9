"""Every environment variable that Reflex reads at run time, each a function here. Nothing else reads the environment.

REFLEX_T0     monotonic nanoseconds (time.perf_counter_ns) at which the caller started this process; phases count from it
REFLEX_TOKEN  the token that clients of reflex-sidecar must send, where no --token-file is given
REFLEX_MODEL, REFLEX_OPTIONS  the model and options of the worker that a platform's handler holds (integrations/held.py)

CUDA_VISIBLE_DEVICES belongs to the CUDA driver, which applies it; here it only says whether there is any use in asking.
"""

from posix import environ


def start_ns():
    """The caller's clock at process start, or None where it gave none or not a number."""
    text = environ.get(b"REFLEX_T0", b"")
    return int(text) if text.isdigit() else None


def child_environment(start):
    """This process's environment for a child that counts its phases from `start`, in ns of time.perf_counter_ns."""
    return {**environ, b"REFLEX_T0": b"%d" % start}


def token():
    """The token that clients of the sidecar must send, None where there is none."""
    text = environ.get(b"REFLEX_TOKEN")
    return None if text is None else text.decode("utf-8", "surrogateescape")


def worker_environment():
    """This process's environment for a worker, which needs no token."""
    return {name: value for name, value in environ.items() if name != b"REFLEX_TOKEN"}


def held_worker():
    """(model, options) of the worker that a platform's handler holds; empty where nothing is said."""
    return tuple(environ.get(name, b"").decode("utf-8", "surrogateescape") for name in (b"REFLEX_MODEL", b"REFLEX_OPTIONS"))


def path_with(folder):
    """PYTHONPATH with one more folder, the first."""
    known = environ.get(b"PYTHONPATH", b"").decode("utf-8", "surrogateescape")
    return f"{folder}:{known}" if known else folder


def no_reports_of_ray():
    """Keep Ray from sending statistics of its use, unless the user has said something about it."""
    import os

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def devices_hidden():
    """Whether CUDA_VISIBLE_DEVICES hides every device: set to nothing, or beginning with a number below 0."""
    text = environ.get(b"CUDA_VISIBLE_DEVICES")
    return text is not None and (not text.strip() or text.strip().startswith(b"-"))
