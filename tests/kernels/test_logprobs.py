"""Log-probabilities of extreme logits, by every compiled level: log-softmax over the whole vocabulary with a shift."""

import numpy as np
import pytest
from levels import LEVELS, load

from reflex import native

ROWS = {
    "far apart": [1000.0, 999.0, -1000.0],
    "all equal": [7.0] * 1000,
    "far below": [-3e38, -3e38, -3.0e38],
    "one certain": [-50.0] * 151_935 + [60.0],
    "a huge vocabulary": np.random.default_rng(4).standard_normal(262_144) * 4,
    "masked": [float("-inf")] * 33 + [0.0, 1.0],
}


@pytest.fixture(scope="module", params=LEVELS)
def library(request):
    return load(request.param)


@pytest.mark.parametrize("name", ROWS)
def test_log_probabilities_of_extreme_logits(library, name):
    row = np.array(ROWS[name], "float32")
    ids = np.arange(len(row), dtype="int64")
    out = np.empty(len(row))
    library.logprobs(row.ctypes.data, len(row), ids.ctypes.data, len(row), out.ctypes.data)
    wide = row.astype("float64")
    wanted = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    assert np.allclose(out, wanted, rtol=0, atol=2e-6)
    assert out.max() <= 1e-6 and abs(np.exp(out).sum() - 1) <= 1e-5, "no positive value; a distribution"


def test_some_level_was_tried():
    assert LEVELS and native.usable_levels()
