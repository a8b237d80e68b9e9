"""Fixtures that several files of this folder share."""

from vocabularies import load  # noqa: F401
