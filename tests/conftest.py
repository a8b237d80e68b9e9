"""Puts this folder on the import path: the oracles and generators below it are shared by all kinds of tests.

What the machine and the moment could change is settled here, for all of them. numpy gets one thread: the matrices are small, and
OpenBLAS's waiting threads are ten times slower on busy cores. Ctrl-C is heard, here and in every process that a test starts, even
where the tests run in the background, which shells let ignore it. Generated examples are the same ones each time, and no clock
judges them.
"""

import os
import signal

import hypothesis

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile(
    "reflex", derandomize=True, database=None, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("reflex")
