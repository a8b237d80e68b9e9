"""Hundreds of requests in a row, among them cancelled, cut, broken, huge and abandoned ones, while clients and workers are killed.

Every answer must be, to the bit, that of a worker which was started for this one request. The whole of it, with ten thousand
requests, is bench/worker.py.
"""

import process
import pytest

from bench.soak import STEPS, WARM_UP, Soak, adapter_of, tiny_model

GROWTH = 2.0  # percent


@pytest.mark.parametrize("seed", [1])
def test_a_soak(tmp_path, seed):
    model = tiny_model(tmp_path)
    found = Soak(process.words, model, adapter_of(model, tmp_path), tmp_path, seed).run(600, 6)
    assert found["steps"] > 600 + WARM_UP and found["counts"]["kill"] == 6
    assert all(found["counts"][name] for name in STEPS)
    assert found["counts"]["of these ended early"] > 5 and found["counts"]["of these refused"] > 20
    assert found["grown_percent"] <= GROWTH, found["resident_bytes"]
