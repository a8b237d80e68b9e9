"""A bounded run of every fuzzer: the recorded inputs and some new ones, in processes of their own. See fuzz.py for long runs."""

import json

import child
import fuzz
import pytest
from guarded import Guarded

from reflex import native

COUNTS = {"walk": 2_000_000, "header": 4000, "tokenizer": 30_000, "template": 1200, "argv": 5000, "request": 800, "load": 150}
COUNTS["lines"] = 1500


@pytest.mark.parametrize("name", fuzz.SHARES)
def test_no_input_does_harm(name):
    found = fuzz.run(name, COUNTS[name], seconds=60, seed=11)
    if "C compiler" in found.get("not_run", ""):
        pytest.skip(found["not_run"])
    assert found["findings"] == [], json.dumps(found["findings"])
    assert found["executions"] > 0 and len(found["outcomes"]) > 1
    assert found["peak_bytes"] < child.MEMORY


def test_every_target_has_its_share():
    assert set(fuzz.SHARES) == {path.stem.removeprefix("target_") for path in child.HERE.glob("target_*.py")}
    plans = fuzz.schedule({"a": 1, "b": 5, "c": 2}, 3, 40.0)
    given = {name: sum(some for plan in plans for each, some in plan if each == name) for name in "abc"}
    assert given == pytest.approx({"a": 15, "b": 75, "c": 30}, abs=2 * fuzz.SHORTEST)
    assert all(sum(some for _, some in plan) <= 40.0 for plan in plans)


def test_the_recorded_inputs_are_few():
    assert sum(path.stat().st_size for path in child.CORPUS.glob("*")) < 100_000


def test_guided_runs_keep_what_reaches_new_lines():
    """Of the same number of inputs, those that go on from kept ones reach further than the kept ones themselves did."""
    found = fuzz.run("template", 150, seed=3, guided=True)
    assert found["findings"] == [] and found["lines"] > 300
    assert 5 < len(found["kept"]) < 100


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
    monkeypatch.setattr(fuzz, "FOUND", child.ROOT / "build" / "fuzz")
    if fault in ("a hang", "memory"):  # slow to see, and made small the same way
        monkeypatch.setattr(fuzz, "minimized", lambda name, data, code: data)
    (one,) = fuzz.once("broken", 5000, 1e9, 1, False)["findings"]
    assert one["code"] == status
    kept = (child.ROOT / one["input"]).read_bytes()
    assert len(kept) == one["bytes"] and (200 in kept or fault == "memory")
    if fault in ("a crash", "an exception"):
        assert kept == bytes([200])


def test_a_process_that_ends_is_followed_by_another(tmp_path, monkeypatch):
    (tmp_path / "target_broken.py").write_text(BROKEN.format(fault="raise KeyError"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(fuzz, "MOST_FINDINGS", 3)
    monkeypatch.setattr(fuzz, "minimized", lambda name, data, code: data)
    found = fuzz.run("broken", 5000)
    assert len(found["findings"]) == 3 and found["executions"] < 5000
