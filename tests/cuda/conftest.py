"""Kernels run in the emulator where numba-cuda is installed; without it only the driver layer is tested."""

import importlib.util

EMULATED = ["test_emulator.py", "test_kernels.py", "test_persistent.py", "test_sampling.py"]
collect_ignore = [] if importlib.util.find_spec("numba_cuda") else EMULATED
