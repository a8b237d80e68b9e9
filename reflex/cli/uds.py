"""Answer requests at a local socket, one JSON object per line, with one or more back; the model is loaded once.

One client at a time, others wait; a client may send any number of requests. SOCKET is made for its owner alone (mode 0600), before
the model is loaded, and removed at the end; one that a dead worker left is taken over. stdout says `ready`, or an error. Requests
and answers: docs/worker.md. Ends after SIGTERM (exit code 0) or Ctrl-C (130), the request at hand then being cancelled with an
answer.
"""

from ..worker import start
from . import front

PARAMETERS = (
    start.MODEL,
    ("SOCKET", "text", None, "The socket's path, at most 107 bytes."),
    start.STALL,
    ("--idle", "float", 10.0, "Seconds after which a silent client gives way to one that waits."),
    *front.ENGINE,
    start.TRACE,
)


def run(out, model, socket, stall, idle, engine):
    """The exit code, after a signal."""
    start.seconds("--stall", stall), start.seconds("--idle", idle)

    def where():
        from ..worker.socket import Socket

        return Socket(socket)

    return start.run(out, model, engine, stall, lambda worker, place: start.over_socket(worker, place, idle), where)
