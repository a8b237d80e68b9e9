"""Hundreds of requests in a row, among them cancelled, cut, broken, huge and abandoned ones, while clients and workers are killed.

Every answer must be, to the bit, that of a worker which was started for this one request. The whole of it, with ten thousand
requests, is bench/worker.py.
"""

import process
import pytest

from bench.worker import STEPS, Soak, tiny_model

# Percent. A worker of 16 MB takes one more arena of the interpreter, 1 MB, in its first thousand requests and none after them:
# bench/worker.py holds 2 over ten thousand.
GROWTH = 6.0


@pytest.mark.parametrize("seed", [1])
def test_a_soak(tmp_path, seed):
    soak = Soak(process.words, tiny_model(tmp_path), tmp_path, seed)
    found = soak.run(600, 6)
    assert found["steps"] > 600 and found["counts"]["kill"] == 6
    assert all(found["counts"][name] for name in STEPS)
    assert found["counts"]["of these ended early"] > 5 and found["counts"]["of these refused"] > 20
    assert found["grown_percent"] <= GROWTH, found["resident_bytes"]
