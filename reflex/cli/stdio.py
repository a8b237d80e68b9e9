"""Answer requests on stdin, one JSON object per line, with one or more on stdout; the model is loaded once.

One request at a time. The first line out is `ready`, or an error. Requests and answers: docs/worker.md. Ends at the end of
stdin (exit code 0), after SIGTERM (0) or Ctrl-C (130), the request at hand then being cancelled with an answer.
"""

from ..worker import start
from . import front

PARAMETERS = (start.MODEL, start.STALL, *front.ENGINE, start.TRACE)


def run(out, model, stall, engine):
    """The exit code, when there is nothing more to answer."""
    return start.run(out, model, engine, start.seconds("--stall", stall), start.over_stdio)
