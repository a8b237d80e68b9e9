"""Puts this folder on the import path: the oracles and generators below it are shared by all kinds of tests."""
