"""List the model families that have a record: models, norms, rotation, feed-forward, windows, experts.

With --json every fact of a record that differs from the defaults of reflex/arch/spec.py.
"""

from .front import SHOWN

PARAMETERS = SHOWN


def run(out):
    """Exit code 0 after printing the table."""
    from ..tables import families, render

    rows = families()
    if out.json:
        out.record("result", {"command": "families", "families": rows})
    else:
        out.text(render(rows, ("name", "models", "block", "positions", "feed_forward", "window", "experts")))
    return 0
