"""Kernels run in the emulator where numba-cuda is installed; without it only the driver layer is tested."""

import importlib.util

import process
import pytest
from scenario import Stub
from stub import fake

EMULATED = ["test_company.py", "test_emulator.py", "test_kernels.py", "test_persistent.py", "test_sampling.py", "test_whole.py"]
EMULATED += ["test_whole_lora.py"]
collect_ignore = [] if importlib.util.find_spec("numba_cuda") else EMULATED


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory):
    """The stub driver."""
    return fake.build(tmp_path_factory.mktemp("stub")) or pytest.skip("no C compiler")


@pytest.fixture(scope="session")
def sm_90():
    """There are kernels for sm_90 in cache/, which the stub's device takes."""
    if not (process.ROOT / "cache" / "cuda-sm_90.bin").exists():
        pytest.skip("no sm_90 kernels in cache/: python precompile.py --only sm_90")


@pytest.fixture(scope="session")
def library(driver_library, sm_90):
    """The stub driver, where a whole session can run on it."""
    return driver_library


@pytest.fixture
def stub(driver_library, tmp_path):
    """Runs scenarios; a kernel file for sm_90 is there."""
    fake.kernel_file(tmp_path, "sm_90")
    return Stub(driver_library, tmp_path)
