"""Puts this folder on the import path: the oracles and generators below it are shared by all kinds of tests.

numpy gets one thread: the matrices are small, and OpenBLAS's waiting threads are ten times slower on busy cores.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
