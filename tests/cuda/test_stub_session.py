"""A whole model on the cuda backend over the stub driver: which calls a start, a prompt and a token cost, and how it fails.

Nothing is computed (the stub writes launches down), so this says nothing about results. Needs the sm_90 kernels in cache/.
"""

import json

import process
import pytest
import tiny
from stub import fake

RUN = """
import json, sys
from reflex.open import open_model
_, _, session = open_model({path!r}, "cuda", 512)
plan = session.plan

def step(count, at):
    plan.evaluate([1] * count, at, list(range(at, at + count)), [0] * count, [0] * count, [count - 1])
    plan.argmax(0)

step(7, 0)
for at in range(7, 7 + {tokens}):
    step(1, at)
print(json.dumps({{"bytes": plan.device_bytes}}))
plan.close()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path)
    return path


@pytest.fixture
def calls(library, model, tmp_path):
    """Driver calls of a run of `tokens` tokens: (list of names, what it printed)."""

    def run(tokens, **settings):
        log = tmp_path / "calls.log"
        log.unlink(missing_ok=True)
        env = fake.environment(library, log, **settings)
        done = fake.python(RUN.format(path=str(model), tokens=tokens), env)
        assert done.returncode == 0, done.stderr
        return [line.split()[0] for line in log.read_text().splitlines()], json.loads(done.stdout)

    return run


def test_one_context_one_upload(calls, model):
    names, result = calls(3)
    for name in ("cuInit", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"):
        assert names.count(name) == 1
    assert names.count("cuMemAlloc_v2") == names.count("cuMemFree_v2")
    assert names.count("cuMemHostRegister_v2") == names.count("cuMemHostUnregister")
    assert result["bytes"] > model.stat().st_size // 2


def test_a_token_costs_a_handful_of_calls(calls):
    few, many = (calls(tokens)[0] for tokens in (20, 120))
    more = {name: many.count(name) - few.count(name) for name in set(many)}
    assert more["cuGraphLaunch"] == 100
    assert {name for name, count in more.items() if count} <= {
        "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyAsync", "cuStreamSynchronize", "cuCtxSetCurrent",
    }  # fmt: skip
    assert sum(more.values()) <= 500


AUTO = """
import reflex.open
reflex.open.choice.NODES = ("/dev/null",)
_, _, session = reflex.open.open_model({path!r}, note=print)
session.plan.evaluate([1], 0, [0], [0], [0], [0])
session.plan.argmax(0)
print(session.plan.name)
session.plan.close()
"""


@pytest.mark.parametrize(
    ("settings", "backend", "said"),
    [
        ({}, "cuda", "Stub GPU 0"),
        ({"DEVICES": 0}, "cpu", "no CUDA device"),
        ({"FAIL": "cuInit:999"}, "cpu", "CUDA_ERROR_UNKNOWN (999)"),
        ({"CAPABILITY": "6.1"}, "cpu", "sm_61"),
        ({"DRIVER": 11000}, "cpu", "driver is too old"),
    ],
)
def test_auto_says_what_it_took(library, model, settings, backend, said):
    done = fake.python(AUTO.format(path=str(model)), fake.environment(library, **settings))
    assert done.returncode == 0, done.stderr
    note, name = done.stdout.splitlines()
    assert name == backend and note.startswith(f"reflex: backend {backend}") and said in note


@pytest.mark.parametrize("words", [("system1", "--candidate", " a", "--candidate", " b"), ("generate", "--max-tokens", "3")])
def test_timings_show_the_device_thread(library, model, words):
    command = (words[0], model, "hello", *words[1:], "--backend", "cuda", "--json", "--timings")
    done = process.reflex(*command, env=fake.environment(library))
    phases = json.loads(done.stdout.splitlines()[-1])
    times = phases["beside"]["device thread"]
    assert {"begin", "driver", "cuInit", "context", "arena", "upload", "kernels"} <= set(times)
    assert list(times.values()) == sorted(times.values())


FAILURES = [
    ({"DEVICES": 0}, 4, "device"),
    ({"MEMORY": 500000}, 5, "out_of_memory"),
    ({"FAIL": "cuStreamSynchronize:700"}, 4, "device"),
    ({"FAIL": "cuLaunchKernelEx:719@9"}, 4, "device"),
    ({"FAIL": "cuMemcpyHtoDAsync_v2:719"}, 4, "device"),
    ({"FAIL": "cuModuleLoadData:209"}, 7, "kernel_cache"),
    ({"FAIL": "cuModuleGetFunction:500"}, 7, "kernel_cache"),
    ({"CAPABILITY": "6.1"}, 4, "device"),
    ({"DRIVER": 11000}, 4, "device"),
]


@pytest.mark.parametrize(("settings", "code", "category"), FAILURES)
def test_failures_of_a_command_are_one_line(library, model, settings, code, category):
    words = ("generate", model, "hello", "--max-tokens", "4", "--backend", "cuda")
    done = process.reflex(*words, env=fake.environment(library, **settings))
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"reflex: {category}: "), lines
    assert done.returncode == code and not done.stdout


def test_the_device_starts_before_anything_is_opened(library, model):
    command = ("system1", model, "hello", "--candidate", " a", "--candidate", " b", "--backend", "cuda", "--json", "--timings")
    done = process.reflex(*command, env=fake.environment(library))
    phases = json.loads(done.stdout.splitlines()[-1])
    assert phases["phases"]["arguments"] <= phases["beside"]["device thread"]["begin"] <= phases["phases"]["imports"]


REFUSED = [
    (("nothing.gguf", "hello"), 3, "model_file"),
    (("MODEL", ""), 2, "invalid_input"),
    (("MODEL", "hello", "--threads", "5000"), 2, "invalid_input"),
    (("MODEL", "hello", "--ctx", "1000000"), 2, "invalid_input"),
]


@pytest.mark.parametrize("driver", [{"DELAY": 200}, {"FAIL": "cuInit:999"}], ids=["slow", "broken"])
@pytest.mark.parametrize(("words", "code", "category"), REFUSED)
def test_what_is_wrong_with_a_request_is_said_whatever_the_device_does(library, model, words, code, category, driver):
    words = [str(model) if word == "MODEL" else word for word in words]
    done = process.reflex("generate", *words, "--backend", "cuda", env=fake.environment(library, **driver))
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"reflex: {category}: "), lines
    assert done.returncode == code and not done.stdout


def test_one_device_is_started_for_each_that_is_used(library, model, tmp_path):
    def starts(*words):
        log = tmp_path / "calls.log"
        log.unlink(missing_ok=True)
        done = process.reflex(*words, env=fake.environment(library, log))
        assert done.returncode in (0, 1), done.stderr
        return sum(line.startswith("cuInit ") for line in log.read_text().splitlines()) if log.exists() else 0

    assert starts("generate", model, "hello", "--max-tokens", "2", "--backend", "cpu") == 0
    assert starts("generate", model, "hello", "--max-tokens", "2", "--backend", "cuda") == 1
    assert starts("check", model, "hello", "--steps", "1", "--against", "cpu", "--backend", "cuda") == 1
    assert starts("check", model, "hello", "--steps", "1", "--against", "cuda", "--backend", "cpu") == 1


NO_DEVICE = [("inspect", "MODEL"), ("families",), ("formats",), ("system1", "MODEL", "a", "--candidate", "b")]


@pytest.mark.parametrize("words", NO_DEVICE)
def test_what_needs_no_device_does_not_touch_the_driver(library, model, tmp_path, words):
    """Not even where `auto` would find one: only an explicit cpu, and commands that compute nothing."""
    words = [str(model) if word == "MODEL" else word for word in words]
    more = ("--backend", "cpu") if words[0] == "system1" else ()
    log = tmp_path / "calls.log"
    assert process.reflex(*words, *more, env=fake.environment(library, log)).returncode == 0
    assert not log.exists() or log.read_text() == ""


def test_memory_that_does_not_suffice_is_said_before_anything_is_copied_and_all_is_given_back(library, model, tmp_path):
    log = tmp_path / "calls.log"
    command = ("generate", model, "hello", "--max-tokens", "4", "--backend", "cuda")
    done = process.reflex(*command, env=fake.environment(library, log, MEMORY=500000))
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 5 and "MiB" in line and "--ctx" in line, line
    names = [each.split()[0] for each in log.read_text().splitlines()]
    assert not [name for name in names if name.startswith("cuMemcpy") or "Launch" in name]
    failed = names.count("cuMemAlloc_v2") - names.count("cuMemFree_v2")
    assert failed == 1 and names.count("cuDevicePrimaryCtxRetain") == 1


THREADS = """
import _thread
inner, left = _thread.start_new_thread, {left}
def start_new_thread(*words):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    return inner(*words)
_thread.start_new_thread = start_new_thread
"""


@pytest.mark.parametrize("left", range(5))
def test_threads_that_cannot_be_started_are_one_line_or_no_matter(library, model, left):
    words = ("system1", model, "hello", "--candidate", " a", "--candidate", " b", "--backend", "cuda")
    done = process.reflex(*words, before=THREADS.format(left=left), env=fake.environment(library))
    if done.returncode:
        (line,) = done.stderr.decode().splitlines()
        assert done.returncode == 5 and line.startswith("reflex: out_of_memory: cannot start a thread"), line
    assert (done.returncode == 0) >= (left == 4) and (left > 0 or done.returncode == 5)
