"""`doctor` and `smoke` where there is a device, which here is the stub driver."""

import json
import shutil

import process
import pytest
from stub import fake


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = fake.build(tmp_path_factory.mktemp("stub"))
    return path or pytest.skip("no C compiler")


@pytest.fixture
def tree(tmp_path):
    """A copy of the run-time package whose cache has kernels for the stub's device and no others."""
    skip = shutil.ignore_patterns("kernels", "__pycache__")
    shutil.copytree(process.ROOT / "reflex", tmp_path / "tree" / "reflex", ignore=skip)
    shutil.copytree(process.ROOT / "cache", tmp_path / "tree" / "cache", ignore=shutil.ignore_patterns("cuda-*"))
    fake.kernel_file(tmp_path / "tree" / "cache", "sm_90")
    return tmp_path / "tree"


@pytest.fixture
def reflex(library, tree):
    """Runs a command of the tree with the stub; (exit code, JSON objects, lines of stderr)."""

    def run(*words, **settings):
        done = process.reflex(*words, "--json", root=tree, env=fake.environment(library, **settings))
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode().splitlines()

    return run


def checks(reflex, name, **settings):
    code, (result,), _ = reflex("doctor", **settings)
    return code, [(check["status"], check["found"]) for check in result["checks"] if check["name"] == name]


def test_smoke_computes_on_the_device(reflex):
    code, (result, phases), errors = reflex("smoke", "--device", "0", "--timings")
    assert code == 0 and not errors and result["backend"] == "cuda"
    assert {key: result["device"][key] for key in ("name", "capability", "driver", "target")} == {
        "name": "Stub GPU 0", "capability": [9, 0], "driver": 12080, "target": "sm_90",
    }  # fmt: skip
    times = phases["beside"]["device thread"]
    assert list(times) == ["begin", "driver", "cuInit", "context", "copy in", "kernels", "kernel run"]
    assert list(times.values()) == sorted(times.values()) and list(phases["phases"])[-1] == "device"


def test_smoke_without_the_device(reflex):
    code, (result,), _ = reflex("smoke", "--device", "none")
    assert code == 0 and result["backend"] == "cpu" and result["device"] is None


FAILURES = [
    ({"DEVICES": 0}, 4, "device"),
    ({"FAIL": "cuStreamSynchronize:700"}, 4, "device"),
    ({"FAIL": "cuModuleLoadData:209"}, 7, "kernel_cache"),
    ({"MEMORY": 5000}, 5, "out_of_memory"),
    ({"CAPABILITY": "7.0"}, 4, "device"),
]


@pytest.mark.parametrize(("settings", "code", "category"), FAILURES)
def test_smoke_says_what_fails(reflex, settings, code, category):
    found, (error,), lines = reflex("smoke", "--device", "0", **settings)
    assert found == code and error["category"] == category and len(lines) == 1 and error["remedy"]


def test_smoke_sees_a_wrong_result(reflex, tree):
    fake.kernel_file(tree / "cache", "sm_90", ["add 128 16 0 FFif"])
    path = tree / "reflex" / "backends" / "cuda" / "trial.py"
    path.write_text(path.read_text().replace("base + size, COUNT, SCALE)", "base + size, COUNT - 1, SCALE)"))
    code, (error,), _ = reflex("smoke", "--device", "0")
    assert code == 4 and "computes wrongly" in error["message"] and "1 of 5000 numbers" in error["found"]


def test_doctor_shows_the_device(reflex):
    code, found = checks(reflex, "device")
    assert code == 0
    assert found == [("ok", "Stub GPU 0, sm_90, driver for CUDA 12.8, 17.2 of 17.2 GB free, sm_90 kernels")]
    assert ("ok", "sm_90 whole") in checks(reflex, "cache")[1]


def test_doctor_knows_a_sleeping_device(reflex):
    _, ((status, found),) = checks(reflex, "device start", DELAY=80)
    assert status == "warn" and "sleeps" in found


def test_doctor_without_a_device_is_content(reflex):
    code, ((status, found),) = checks(reflex, "device", DEVICES=0)
    assert (code, status) == (0, "ok") and "no CUDA device" in found


@pytest.mark.parametrize("failing", ["cuInit:999", "cuInit:803", "cuModuleLoadData:200", "cuStreamSynchronize:719"])
def test_doctor_reports_a_broken_device(reflex, failing):
    code, ((status, found),) = checks(reflex, "device", FAIL=failing)
    assert (code, status) == (1, "fail") and "CUDA_ERROR" in found


def test_doctor_warns_of_ptx_and_of_missing_kernels(reflex, tree):
    fake.kernel_file(tree / "cache", "ptx", image=b"// PTX\n\0")
    code, ((status, found),) = checks(reflex, "device", CAPABILITY="13.0")
    assert (code, status) == (0, "warn") and "compiled by the driver" in found
    for path in (tree / "cache").glob("cuda-*"):
        path.unlink()
    code, ((status, found),) = checks(reflex, "device")
    assert (code, status) == (0, "warn") and "no CUDA kernels" in found


def test_doctor_finds_damaged_images(reflex, tree):
    path = tree / "cache" / "cuda-sm_90.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    code, found = checks(reflex, "cache")
    assert code == 1 and any(status == "fail" and "corrupt" in text for status, text in found)
