"""End a request that was sent before on the same connection: the one at hand, or one that waits for its turn.

It works when it comes, not when its turn is: the request it ends is answered first, with finish_reason `cancelled`.
"""

FIELDS = (("target", "id", None, "The id of the request to end; by default all that were sent before."),)
RESULT = ("command", "cancelled", "timings")


def run(worker, target):
    """Send whether there was such a request."""
    worker.send("result", {"command": "cancel", "cancelled": worker.line.hit, "timings": worker.times()})
