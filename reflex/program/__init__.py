"""From a Spec to a Program: the flat list of named operations that every backend interprets. See records and build."""

from .build import build
from .records import Program, Rope, Step

__all__ = ["Program", "Rope", "Step", "build"]
