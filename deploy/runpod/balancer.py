"""Runpod's load balancer: the sidecar, at the port that Runpod names, whose /ping says 204 while the model is loaded and then 200.

    PORT=8000 REFLEX_MODEL=/models/model.gguf python balancer.py

No package of Runpod's is needed. REFLEX_OPTIONS has options of the sidecar (--ctx 4096 --queue 64).
"""

import os
import sys

from reflex import settings
from reflex.errors import ReflexError
from reflex.integrations.held import words_of


def words():
    """The command that takes this process's place."""
    return [sys.executable, "-m", "reflex.sidecar", *words_of(*settings.held_worker()), "--host", "0.0.0.0", "--port", port()]


def port():
    """Where Runpod looks: PORT, for requests and for /ping."""
    return os.environ.get("PORT") or "80"


def main():
    """Become the sidecar."""
    try:
        os.execv(sys.executable, words())
    except ReflexError as error:
        print(error.line(), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
