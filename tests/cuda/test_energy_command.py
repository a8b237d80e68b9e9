"""`--energy` as a process, over a stub of NVML beside that of the driver, by the real bindings."""

import json

import process
import pytest
import tiny
from stub import fake

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stub")
    path = fake.build(folder)
    if path is None:
        pytest.skip("no C compiler")
    fake.build(folder, "libnvidia-ml.so.1", "nvml.c")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf")


def run(library, *words, nvml=None, **options):
    env = fake.environment(library)
    env |= {f"NVML_{name}": str(value) for name, value in (nvml or {}).items()}
    done = process.reflex(*words, env=env, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def asked(library, model, sm_90):
    """`system1 --energy` on the stub's device: (exit code, JSON objects, stderr)."""

    def ask(*words, json_too=True, **nvml):
        more = [*words, "--backend", "cuda", "--energy", *(["--json"] if json_too else [])]
        code, out, errors = run(library, "system1", model, "The", "--candidate", " a", "--candidate", " b", *more, nvml=nvml)
        return code, [json.loads(line) for line in out.splitlines()] if json_too else out, errors

    return ask


def test_joules_of_a_call_are_in_its_phases(asked):
    code, (result, phases), errors = asked(JOULES=1000, WATTS=50)
    assert code == 0, errors
    assert result["type"] == "result" and phases["type"] == "phases" and "idle power" in phases["phases"]
    found = phases["energy"]
    assert found["method"] == "total energy counter" and found["device"] == "Stub GPU 0"
    assert found["joules"] == pytest.approx(1000, rel=0.05) and found["idle_watts"] == pytest.approx(50, rel=0.1)
    assert found["gross_joules"] > found["joules"]


def test_the_text_says_the_method(asked):
    code, out, errors = asked(json_too=False, JOULES=1000)
    (line,) = [line for line in errors.splitlines() if line.startswith("energy")]
    assert code == 0 and "total energy counter, Stub GPU 0" in line and "phase" in errors and "energy" not in out


def test_sampled_power_is_named(asked):
    code, (_, phases), _ = asked(FAIL="nvmlDeviceGetTotalEnergyConsumption:3", WATTS=50)
    assert code == 0 and phases["energy"]["method"] == "sampled power"
    assert phases["energy"]["idle_watts"] == pytest.approx(50, rel=0.05)


FAILURES = [
    ({"FAIL": "nvmlInitWithFlags:9"}, "NVML does not start"),
    ({"FAIL": "nvmlDeviceGetTotalEnergyConsumption:3,nvmlDeviceGetPowerUsage:3"}, "no device tells its energy or its power"),
    ({"FAIL": "nvmlDeviceGetCount_v2:15"}, "NVML does not tell the energy"),
    ({"DEVICES": 0}, "no device tells its energy or its power"),
]


@pytest.mark.parametrize("nvml, words", FAILURES, ids=[words for _, words in FAILURES])
def test_failures_are_one_line_before_the_device_is_touched(asked, nvml, words):
    code, (error,), errors = asked(**nvml)
    assert code == 4 and error["category"] == "device" and error["message"] == words
    assert len(errors.splitlines()) == 1


def test_missing_libraries_are_named(library, model):
    words = ("system1", model, "The", "--candidate", " a", "--backend", "cuda", "--energy")
    code, _, errors = run(library, *words, before="import sys; sys.modules['pynvml'] = None")
    assert code == 4 and "reflex-gguf[energy]" in errors and len(errors.splitlines()) == 1
    library.with_name("libnvidia-ml.so.1").rename(library.with_name("away"))
    try:
        code, _, errors = run(library, *words)
    finally:
        library.with_name("away").rename(library.with_name("libnvidia-ml.so.1"))
    assert code == 4 and "NVML does not start" in errors and len(errors.splitlines()) == 1


def test_a_cpu_has_no_energy(library, model):
    code, _, errors = run(library, "system1", model, "The", "--candidate", " a", "--backend", "cpu", "--energy")
    assert code == 2 and "energy is measured on GPUs alone" in errors and len(errors.splitlines()) == 1


def test_nothing_is_loaded_where_nobody_asks(model):
    before = "import sys; sys.modules['reflex.energy'] = sys.modules['pynvml'] = None"
    done = process.reflex("system1", model, "The", "--candidate", " a", "--backend", "cpu", "--timings", before=before)
    assert done.returncode == 0, done.stderr
