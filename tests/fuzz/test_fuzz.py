"""A bounded run of every fuzzer: the recorded inputs and some new ones, in processes of their own. See driver.py for long runs."""

import json
import shutil

import driver
import pytest
from guarded import Guarded

from reflex import native

COUNTS = {"walk": 1_000_000, "header": 4000, "tokenizer": 6400, "template": 1200, "argv": 5000, "load": 40}


@pytest.mark.parametrize("name", driver.TARGETS)
def test_no_input_does_harm(name):
    if name == "walk" and not shutil.which("cc"):
        pytest.skip("walk.c needs a C compiler, and there is no cc here: the native walk is only fuzzed through target header")
    found = driver.run(name, COUNTS[name], seconds=60, seed=11)
    assert found["findings"] == [], json.dumps(found["findings"])
    assert found["executions"] > 0 and len(found["outcomes"]) > (name == "argv")
    assert found["peak_bytes"] < driver.MEMORY


def test_guard_pages_are_out_of_reach():
    memory = Guarded(5000)
    for address in (memory.start - 1, memory.end):
        assert native.libc("write", 3)(1, address, 1) == -1
    memory.free()


BROKEN = """
import os, signal
class Target:
    def make(self, random):
        return random.randbytes(40)
    def run(self, data):
        if 200 in data:
            {fault}
        return "fine"
"""
FAULTS = {
    "a crash": ("from reflex import native; native.bytes_at(1 << 46, 1)", -11),
    "a hang": ("\n            while True: pass", -27),
    "an exception": ("raise KeyError", 1),
    "memory": ("self.held = getattr(self, 'held', None) or b'x' * (300 << 20)", 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen_and_their_input_is_kept_and_made_small(fault, tmp_path, monkeypatch):
    code, status = FAULTS[fault]
    (tmp_path / "target_broken.py").write_text(BROKEN.format(fault=code))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(driver, "FOUND", driver.ROOT / "build" / "fuzz")
    if fault in ("a hang", "memory"):  # slow to see, and made small the same way
        monkeypatch.setattr(driver, "minimized", lambda name, data, code: data)
    found = driver.run("broken", 5000)
    (one,) = found["findings"]
    assert one["code"] == status
    kept = (driver.ROOT / one["input"]).read_bytes()
    assert len(kept) == one["bytes"] and (200 in kept or fault == "memory")
    if fault in ("a crash", "an exception"):
        assert kept == bytes([200])
