"""What the worker is and how it is: context in tokens, its process, counts of requests since it began, memory held."""

from posix import getpid, sysconf
from time import monotonic

FIELDS = ()
RESULT = ("command", "model", "backend", "context", "process", "uptime_ms", "requests", "errors", "cancelled", "resident_bytes")
RESULT += ("timings",)


def run(worker):
    """Send it."""
    session = worker.session
    fields = {"command": "health", "model": session.model, "backend": session.backend, "context": session.context}
    fields |= {"process": getpid(), "uptime_ms": round(1000 * (monotonic() - worker.started), 3), **worker.counts}
    worker.send("result", {**fields, "resident_bytes": resident(), "timings": worker.times()})


def resident():
    """Bytes of memory that this process holds, the parts of the model's file it has read among them; None where unknown."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
