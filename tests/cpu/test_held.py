"""The worker that platforms' handlers hold: answers, errors as answers, deaths of the worker, one request at a time."""

import os
import signal
import threading

import process
import pytest
import tiny

from reflex import settings
from reflex.integrations import held as module
from reflex.integrations.held import Held, status

ENGINE = ("--threads", "1", "--ctx", "512", "--backend", "cpu")
SCORE = {"command": "system1", "prompt": "the quick brown", "candidates": [" fox", " dog"]}
TEXT = {"command": "generate", "prompt": "the quick brown", "max_tokens": 6}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf", ends=False)


@pytest.fixture
def held(model):
    """Its long texts stop after some tokens, until they are cancelled or their client is gone."""
    worker = Held(process.words("stdio", model, *ENGINE, before=process.HELD.format(at=40)), timeout=300, wait=300)
    yield worker
    worker.close()


def pid(held):
    return held._client.process.pid


def lasting(answer):
    return {name: value for name, value in answer.items() if name not in ("timings", "id")}


def test_requests_are_those_of_the_worker(held):
    assert held.start()["type"] == "ready" and held.starts == 1
    assert held(SCORE)["best_text"] in SCORE["candidates"]
    tokens = list(held.stream({**TEXT, "stream": True, "id": "mine"}))
    assert [said["type"] for said in tokens] == ["token"] * 6 + ["result"]
    assert "".join(said["text"] for said in tokens[:-1]) == tokens[-1]["text"] == held(TEXT)["text"]
    assert held({**TEXT, "stream": True})["text"] == tokens[-1]["text"]  # a call has one answer
    assert held({"command": "health"})["requests"] == 5 and held.starts == 1


@pytest.mark.parametrize(
    "request_, words",
    [
        (None, "this is no request"),
        ([], "this is no request"),
        ("system1", "this is no request"),
        ({}, "this is no request"),
        ({"command": ["system1"]}, "this is no request"),
        ({"command": "cancel"}, "this is no request"),
        ({"command": "system1", "candidates": []}, ""),
        ({**SCORE, "candidate": 1}, ""),
        ({**TEXT, "max_tokens": "many"}, ""),
        ({**TEXT, "stream": True, "temperature": -1}, ""),
    ],
)
def test_what_is_wrong_with_a_request_is_its_answer(held, request_, words):
    answer = held(request_)
    assert list(answer) == ["error"] and answer["error"]["category"] == "invalid_input" and words in answer["error"]["message"]
    assert status(answer) == 400 and held(SCORE)["type"] == "result" and held.starts == 1


def test_a_worker_that_died_between_requests_is_not_noticed(held):
    before = held(SCORE)
    os.kill(pid(held), signal.SIGKILL)
    held._client.process.wait()
    assert lasting(held(SCORE)) == lasting(before) and held.starts == 2


def test_a_request_that_kills_its_worker_twice_is_an_error(held, monkeypatch):
    held.start()
    asked = module.Client.request

    def request(client, *words, **fields):
        os.kill(client.process.pid, signal.SIGKILL)
        client.process.wait()
        return asked(client, *words, **fields)

    monkeypatch.setattr(module.Client, "request", request)
    answer = held(SCORE)
    assert answer["error"]["category"] == "io" and held.starts == 2 and status(answer) == 500
    monkeypatch.undo()
    assert held(SCORE)["type"] == "result" and held.starts == 3


def test_a_stream_that_broke_off_is_not_begun_again(held):
    tokens = held.stream({**TEXT, "stream": True, "max_tokens": 400, "temperature": 2.0, "seed": 1})
    assert next(tokens)["type"] == "token"
    os.kill(pid(held), signal.SIGKILL)
    rest = list(tokens)
    assert list(rest[-1]) == ["error"] and all(said.get("type") == "token" for said in rest[:-1]) and held.starts == 1


def test_a_stream_that_is_left_does_not_show_in_the_next_answer(held):
    before = held(SCORE)
    tokens = held.stream({**TEXT, "stream": True, "max_tokens": 400, "temperature": 2.0, "seed": 1})
    next(tokens)
    tokens.close()
    assert lasting(held(SCORE)) == lasting(before) and held.starts == 2


def test_no_answer_in_time(held, monkeypatch):
    held.start()
    os.kill(pid(held), signal.SIGSTOP)
    stopped, leave = held._client.process, module.Client.close

    def close(client):
        stopped.send_signal(signal.SIGCONT)
        leave(client)

    monkeypatch.setattr(module.Client, "close", close)
    answer = held(SCORE, timeout=0.2)
    monkeypatch.undo()
    assert answer["error"]["message"] == "the worker gives no answer" and stopped.poll() is not None
    assert held(SCORE)["type"] == "result" and held.starts == 2


def test_threads_take_turns(held):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(held(SCORE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and len({str(lasting(answer)) for answer in answers}) == 1 and held.starts == 1


def test_a_model_that_cannot_be_loaded(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"no model")
    answer = Held(process.words("stdio", tmp_path / "bad.gguf"))(SCORE)
    assert answer["error"]["category"] == "model_file" and status(answer) == 500


def test_the_command_is_said_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "environ", {b"REFLEX_MODEL": b"/m/a b.gguf", b"REFLEX_OPTIONS": b"--ctx 512 --device 'GPU-1 2'"})
    assert module.words_of(*settings.held_worker()) == ["/m/a b.gguf", "--ctx", "512", "--device", "GPU-1 2"]
    monkeypatch.setattr(settings, "environ", {})
    assert "no model is named" in Held()(SCORE)["error"]["message"]
    monkeypatch.setattr(settings, "environ", {b"REFLEX_MODEL": b"m", b"REFLEX_OPTIONS": b"'"})
    assert "the options cannot be read" in Held()(SCORE)["error"]["message"]
    (tmp_path / "reflex").write_text("#!/bin/sh\n")
    (tmp_path / "reflex").chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))
    assert module.program() == str(tmp_path / "reflex")
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(module.InputOutputError, match="there is no program reflex"):
        module.program()
