"""Native decoders of every format and every compiled level that this machine runs, between guard pages."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fences import Fenced
from levels import LEVELS, load

from reflex import native, quant
from reflex.quant.types import TYPES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=LEVELS)
def library(request):
    return load(request.param)


def assert_same(found, wanted):
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found.view(np.uint32)[~nan], wanted.view(np.uint32)[~nan])


def test_some_level_is_compiled():
    assert LEVELS


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("block", TYPES.values(), ids=lambda b: b.name)
def test_decode(library, block):
    function = getattr(library, f"decode_{block.name}")
    rng = np.random.default_rng(block.id)
    for blocks in (1, 2, 37):
        data = rng.integers(0, 256, blocks * block.nbytes, dtype=np.uint8).tobytes()
        wanted = quant.decode(block.name, data)
        for at_end in (False, True):
            source, destination = Fenced(len(data), at_end), Fenced(4 * wanted.size, at_end)
            source.view[:] = data
            function(source.address, destination.address, wanted.size)
            assert_same(np.frombuffer(destination.view, dtype=np.float32).copy(), wanted)
            source.free(), destination.free()


def test_no_elements_touch_nothing(library):
    for block in TYPES.values():
        getattr(library, f"decode_{block.name}")(0, 0, 0)


def test_every_half_float(library):
    """All 65,536 of them: machines without conversion instructions do it in integer steps."""
    halves = np.arange(65536, dtype="<u2")
    found = np.empty(65536, dtype=np.float32)
    library.decode_F16(halves.ctypes.data, found.ctypes.data, 65536)
    assert_same(found, halves.view("<f2").astype("f4"))


ROUNDING = """
import sys
import numpy as np
from numba import njit
from reflex.kernels.intrinsics import store_f16
from reflex.kernels.target import current

@njit
def narrow(address, values):
    for i in range(values.size):
        store_f16(address + 2 * i, values[i])

assert not current().avx2
halves = np.arange(0x7C00, dtype="<u2").view("<f2").astype("f4")
middles = (halves[1:] + halves[:-1]) / 2
edges = np.array([65504, 65519.996, 65520, 65536, 1e9, np.inf, np.nan, 2.0**-24, 2.0**-25, 2.0**-26, 0], dtype="f4")
values = np.concatenate([halves, middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(9e9)), edges])
values = np.concatenate([values, -values])
found = np.empty(values.size, dtype="<f2")
narrow(found.ctypes.data, values)
with np.errstate(over="ignore"):
    np.testing.assert_array_equal(found, values.astype("<f2"))
    zero = values == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(values[zero]))
print("rounded", values.size)
"""


@pytest.mark.skipif(native.machine() != "x86_64", reason="only x86 has levels without half floats")
def test_rounding_to_half_without_instructions_for_it():
    environment = {**os.environ, "REFLEX_LEVEL": "x86-64-v2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", ROUNDING], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rounded 25")
