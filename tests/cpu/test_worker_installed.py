"""The worker out of a wheel, by both launchers: the bundle holds its modules, requests work, signals end it in order."""

import json
import subprocess

import pytest
import tiny
from test_packaging import backend, bin_folder, install, start, wheel  # noqa: F401

SAID = b"""{"command": "health"}
{bad
{"command": "generate", "prompt": "the quick", "max_tokens": 3, "regex": "[ab]*"}
{"command": "system1", "prompt": "the quick", "candidates": [" fox"]}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf")


def test_an_installed_worker_answers(bin_folder, start, model):  # noqa: F811
    done = subprocess.run([bin_folder / start, "stdio", model, "--ctx", "512"], input=SAID, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["ready", "result", "error", "result", "result"]


def test_an_installed_worker_ends_in_order(bin_folder, start, model, tmp_path):  # noqa: F811
    words = [bin_folder / start, "uds", model, tmp_path / "s", "--ctx", "512"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert json.loads(running.stdout.readline())["socket"] == str(tmp_path / "s")
    running.terminate()
    assert running.wait(300) == 0 and not (tmp_path / "s").exists()
    running.stdout.close()


def test_the_bundle_holds_the_worker(backend):  # noqa: F811
    from test_packaging import ROOT

    from reflex.worker import protocol

    names = set(backend.bundle.modules(ROOT))
    assert {"reflex.cli.stdio", "reflex.cli.uds", "reflex.worker.loop", "reflex.worker.socket"} <= names
    assert {f"reflex.worker.requests.{name}" for name in protocol.names()} <= names


def test_the_sidecar_is_there_and_says_what_it_lacks(bin_folder, model):  # noqa: F811
    program = bin_folder / "reflex-sidecar"
    done = subprocess.run([program, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--queue" in done.stdout
    done = subprocess.run([program, model, "--port", "0"], capture_output=True, text=True, timeout=300)  # a venv without its extra
    assert done.returncode == 8 and done.stderr.count("\n") == 2  # the first says where it listens
    assert "reflex-gguf[sidecar]" in done.stderr and "Traceback" not in done.stderr
