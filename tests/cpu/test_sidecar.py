"""The sidecar as a process over a tiny model: every endpoint against the worker's own answers, and the lives of the worker."""

import concurrent.futures
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import process
import pytest
import sidecars
from sidecars import ENGINE, TEXT, Running, until

from reflex.client import Client
from reflex.sidecar import answers
from reflex.sidecar.shape import REFERENCE

CHAT, COMPLETE, CLASSIFY, SYSTEMONE = "/v1/chat/completions", "/v1/completions", "/v1/classify", "/v1/systemone"
MESSAGES = [{"role": "user", "content": " fox? "}]
VARIED = {"temperature": 2.0, "seed": 11, "top_k": 50}
LONG = {"prompt": TEXT, "max_tokens": 400, "temperature": 2.0, "seed": 11}
QUESTIONS = {
    "route": {"type": "choice", "instructions": "Which one?", "criteria": {"fox": "an animal", "dog": None}},
    "angry": {"type": "noul", "instructions": {"q": "angry?"}, "criteria": {"true": "shouting"}},
    "level": {"type": "score", "instructions": "How much?", "criteria": ["none", None, {"a": 1}]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sidecar")


@pytest.fixture(scope="module")
def model(folder):
    return sidecars.tiny_model(folder)


@pytest.fixture(scope="module")
def running(folder, model):
    with Running(folder, model) as found:
        yield found


@pytest.fixture(scope="module")
def worker(model):
    with Client(process.words("stdio", model, *ENGINE)) as client:
        yield client


def fits(said, name):
    """Whether an answer is as the document says."""
    jsonschema.validate(said, {**answers.SCHEMAS[name], "components": {"schemas": answers.SCHEMAS}})
    return said


# ---- answers are the worker's ----


@pytest.mark.parametrize(
    "settings", [{"temperature": 0}, {**VARIED, "stop": ["e"]}, {**VARIED, "repeat_penalty": 1.2, "min_p": 0.01}]
)
def test_completions_are_the_text_of_the_worker(running, worker, settings):
    expected = worker.request("generate", prompt=TEXT, max_tokens=20, **{**settings, "stop": settings.get("stop", [])})
    found = fits(running.ask(COMPLETE, {"prompt": TEXT, "max_tokens": 20, **settings}).said, "CompletionAnswer")
    assert found["choices"][0]["text"] == expected["text"] and found["choices"][0]["finish_reason"] == expected["finish_reason"]
    counts = {"prompt_tokens": expected["prompt_tokens"], "completion_tokens": expected["completion_tokens"]}
    assert found["usage"] == {**counts, "total_tokens": sum(counts.values())}
    *chunks, last = running.events(
        COMPLETE, {"prompt": TEXT, "max_tokens": 20, "stream_options": {"include_usage": True}, **settings}
    )
    *chunks, final, usage = map(json.loads, chunks)
    assert last == "[DONE]" and "".join([chunk["choices"][0]["text"] for chunk in chunks]) == expected["text"]
    assert final["choices"][0]["finish_reason"] == expected["finish_reason"]
    assert usage["choices"] == [] and usage["usage"] == found["usage"] and chunks[0]["usage"] is None


def test_a_prompt_may_be_token_ids(running, worker):
    ids = worker.tokenize(TEXT)
    found = [running.ask(COMPLETE, {"prompt": prompt, "temperature": 0}).said for prompt in (ids, [float(i) for i in ids], TEXT)]
    assert found[0]["choices"] == found[1]["choices"] == found[2]["choices"]
    assert found[0]["usage"]["completion_tokens"] == 16  # OpenAI's default


def test_chat_goes_through_the_template_of_the_file(running, worker):
    asked = {"messages": MESSAGES, "max_completion_tokens": 9, "temperature": 0}
    expected = worker.request("generate", prompt="<user>fox?", max_tokens=9)
    found = fits(running.ask(CHAT, asked).said, "ChatAnswer")
    assert found["choices"][0]["message"] == {"role": "assistant", "content": expected["text"], "refusal": None}
    assert found["usage"]["prompt_tokens"] == expected["prompt_tokens"] and found["model"] == "tiny"
    parts = [{"role": "user", "content": [{"type": "text", "text": " fox? "}]}]
    assert running.ask(CHAT, {**asked, "messages": parts}).said["choices"] == found["choices"]
    more = running.ask(CHAT, {**asked, "chat_template_kwargs": {"extra": "!"}}).said
    assert more["usage"]["prompt_tokens"] == len(worker.tokenize("<user>fox?!"))
    first, *chunks, last = map(json.loads, running.events(CHAT, asked)[:-1])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""} and last["choices"][0]["delta"] == {}
    assert "".join([chunk["choices"][0]["delta"]["content"] for chunk in chunks]) == expected["text"]


def test_log_probabilities_are_those_of_the_worker(running, worker):
    tokens = list(stream := worker.generate(TEXT, max_tokens=12, logprobs=True, top_logprobs=3, **VARIED))
    asked = {"prompt": TEXT, "max_tokens": 12, "logprobs": 3, **VARIED}
    found = fits(running.ask(COMPLETE, asked).said, "CompletionAnswer")["choices"][0]
    assert found["text"] == stream.result["text"]
    spelled, values = found["logprobs"]["tokens"], found["logprobs"]["token_logprobs"]
    assert values == [token["logprob"] for token in tokens if token["token_id"] is not None]
    assert spelled == [bytes(token["bytes"]).decode("utf-8", "replace") for token in tokens if token["token_id"] is not None]
    assert found["logprobs"]["text_offset"] == sorted(found["logprobs"]["text_offset"])
    chat = running.ask(CHAT, {"messages": MESSAGES, "max_tokens": 5, "logprobs": True, "top_logprobs": 4, "temperature": 0}).said
    for token in fits(chat, "ChatAnswer")["choices"][0]["logprobs"]["content"]:
        best = token["top_logprobs"][0]
        assert len(token["top_logprobs"]) == 4 and {name: token[name] for name in best} == best  # greedy: the first is taken
        assert [each["logprob"] for each in token["top_logprobs"]] == sorted([e["logprob"] for e in token["top_logprobs"]])[::-1]
    whole = json.loads(running.events(CHAT, {"messages": MESSAGES, "max_tokens": 5, "logprobs": True, "temperature": 0})[1])
    assert whole["choices"][0]["logprobs"]["content"][0]["logprob"] == chat["choices"][0]["logprobs"]["content"][0]["logprob"]


def test_text_is_held_to_json(running):
    schema = {"type": "object", "properties": {"a": {"enum": [1, "x"]}, "b": {"type": "boolean"}}, "required": ["a", "b"]}
    for _ in range(3):
        wanted = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}
        said = running.ask(CHAT, {"messages": MESSAGES, "max_tokens": 60, "temperature": 2, "response_format": wanted}).said
        jsonschema.validate(json.loads(said["choices"][0]["message"]["content"]), schema)
        wanted = {"type": "json_object"}
        said = running.ask(CHAT, {"messages": MESSAGES, "max_tokens": 40, "temperature": 2, "response_format": wanted}).said
        assert isinstance(json.loads(said["choices"][0]["message"]["content"]), dict)


def test_classify_is_the_decision_of_the_worker(running, worker):
    settings = {"rule": "pmi", "temperature": 0.5, "terminator": ".", "prior": "so"}
    expected = worker.system1(TEXT, [" fox", " dog", " fox"], **settings)
    found = fits(running.ask(CLASSIFY, {"prompt": TEXT, "labels": [" fox", " dog", " fox"], **settings}).said, "ClassifyAnswer")
    assert found["label"] == expected["best_text"] and found["label_index"] == expected["best_index"]
    assert [each["probability"] for each in found["labels"]] == [each["probability"] for each in expected["candidates"]]
    assert [each["logprob"] for each in found["labels"]] == [each["sum"] for each in expected["candidates"]]
    assert [each["token_ids"] for each in found["labels"]] == [each["token_ids"] for each in expected["candidates"]]
    assert {name: found[name] for name in ("rule", "entropy_bits", "margin", "warnings")} == {
        name: expected[name] for name in ("rule", "entropy_bits", "margin", "warnings")
    }
    assert found["usage"]["prompt_tokens"] == expected["prompt_tokens"] and len(found["warnings"]) == 1
    by_chat = running.ask(CLASSIFY, {"messages": MESSAGES, "labels": ["yes", "no"]}).said
    assert by_chat["labels"][0]["logprob"] == worker.system1("<user>fox?", ["yes", "no"])["candidates"][0]["sum"]


def test_systemone_answers_typed_questions(running, worker):
    found = fits(running.ask(SYSTEMONE, {"state": {"a": "é"}, "questions": QUESTIONS}).said, "SystemOneAnswer")
    route, angry, level = (found["answers"][name] for name in QUESTIONS)
    asked = '{"a": "é"}\n\nWhich one?\n- fox: an animal\n- dog\nAnswer with one of these, exactly as it is written.'
    expected = worker.system1(messages=[{"role": "user", "content": asked}], candidates=["fox", "dog"])
    shares = [each["probability"] for each in expected["candidates"]]
    assert route == {
        "type": "choice",
        "choice": expected["best_text"],
        "probabilities": dict(zip(["fox", "dog"], shares, strict=True)),
        "confidence": pytest.approx(2 * max(shares) - 1),
    }
    assert 0 < angry["noul"] < 1 and sum(level["probabilities"].values()) == pytest.approx(1)
    assert level["score"] == pytest.approx(level["probabilities"]["1"] + 2 * level["probabilities"]["2"])
    assert level["legend"] == {"0": "none", "1": None, "2": {"a": 1}}
    assert found["usage"]["output_tokens"] == 0 and found["usage"]["input_tokens"] > 3 * len(worker.tokenize(asked)) // 2


def test_pages(running):
    health = fits(running.ask("/healthz").said, "Health")
    assert health == running.ask("/ping").said and health["context_length"] == 512 and health["backend"] == "cpu"
    (only,) = fits(running.ask("/v1/models").said, "Models")["data"]
    assert only["id"] == "tiny" and running.ask("/v1/models/tiny").said == only
    assert running.ask("/v1/models/other").status == 404
    head = running.ask("/healthz", method="HEAD")
    assert head.status == 200 and head.body == b""
    counts = running.ask("/metrics")
    assert counts.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert running.gauge("worker_ready") == 1 and running.gauge('requests_total{path="/ping",status="200"}') >= 1


def test_metrics_are_prometheus_text(running):
    parser = pytest.importorskip("prometheus_client.parser")
    assert running.ask("/healthz").status == 200
    families = {family.name: family for family in parser.text_string_to_metric_families(running.ask("/metrics").body.decode())}
    assert {"reflex_requests", "reflex_request_seconds", "reflex_tokens", "reflex_worker_ready"} <= set(families)
    buckets = [
        s for s in families["reflex_request_seconds"].samples if s.name.endswith("_bucket") and s.labels["path"] == "/healthz"
    ]
    assert [s.value for s in buckets] == sorted([s.value for s in buckets]) and buckets[-1].labels["le"] == "+Inf"


def test_the_document_says_what_there_is(running):
    said = running.ask("/openapi.json").said
    assert said["openapi"] == "3.1.0" and set(said["components"]["schemas"]) >= set(answers.SCHEMAS)
    for path, methods in said["paths"].items():
        for method in methods:
            status = running.ask(path.replace("{id}", "tiny"), b"{" if method == "post" else None, method=method.upper()).status
            assert status == {"post": 400, "get": 200}[method], path
    assert json.dumps(said).count(REFERENCE) > 20


def test_nothing_of_the_engine_is_imported(folder, model):
    spy = "import os\nreal = os._exit\n"
    spy += "def end(code):\n    os.write(2, ' '.join(sys.modules).encode())\n    real(code)\nos._exit = end\n"
    with Running(folder, model, before=spy) as found:
        assert found.ask(SYSTEMONE, {"state": "a", "questions": QUESTIONS}).status == 200
        assert found.ask(CHAT, {"messages": MESSAGES, "stream": True}).status == 200
        _, said = found.stop()
    own = {name.split(".")[1] for name in said.split() if name.startswith("reflex.")}
    assert own == {"sidecar", "errors", "settings", "client", "worker", "constrain", "cli", "api"} & own, own
    assert not {"numpy", "numba", "ctypes"} & set(said.split())


IMPORTED = """
import sys
from reflex.sidecar import later, main
later.set_aside()
import asyncio
from reflex.sidecar import app, engine, listen, server
from uvicorn.config import Config
Config(None, http=server.Protocol, ws=None, interface="asgi3", lifespan="off", log_config=None, proxy_headers=False).load()
print(*sys.modules)
import ssl, uvicorn
uvicorn.run, ssl.create_default_context().check_hostname
"""


def test_what_is_imported_before_the_first_answer():
    boot = sidecars.words(before=IMPORTED + "sys.exit()")
    found = subprocess.run(boot, capture_output=True, text=True, check=True, timeout=300).stdout.split()
    large = {"_ssl", "anyio", "click", "email.message", "hashlib", "http.client", "multiprocessing", "starlette", "tempfile"}
    assert not large & set(found) and len(found) <= 225, large & set(found) or len(found)


# ---- the lives of the worker ----


def test_requests_wait_while_the_model_is_loaded(folder, model):
    slow = folder / "slow"
    gate = folder / "gate"
    slow.write_text(f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\nexec {folder}/reflex "$@"\n')
    slow.chmod(0o755)
    sidecars.worker_program(folder)
    with Running(folder, model, worker=slow, wait=False) as found, concurrent.futures.ThreadPoolExecutor() as pool:
        assert found.ask("/healthz").status == 204 and found.ask("/ping").body == b""
        assert found.ask("/v1/models").said["data"][0]["context_length"] is None
        waiting = pool.submit(found.ask, CLASSIFY, {"prompt": TEXT, "labels": [" fox"]})
        until(lambda: found.gauge("requests_waiting") == 1)
        gate.touch()
        assert waiting.result().status == 200 and found.ask("/healthz").status == 200


def test_a_worker_that_cannot_start_ends_the_sidecar(folder, tmp_path):
    done = subprocess.run(
        sidecars.words(tmp_path / "none.gguf", "--port", "0", "--worker", sidecars.worker_program(folder)),
        capture_output=True,
        timeout=300,
    )
    said = done.stderr.decode()
    assert done.returncode == 3 and said.count("reflex: model_file:") == 1 and "Traceback" not in said
    done = subprocess.run(sidecars.words("a.gguf", "--port", "0", "--worker", tmp_path / "none"), capture_output=True, timeout=300)
    assert done.returncode == 8 and b"cannot start the worker" in done.stderr and done.stderr.count(b"\n") == 1
    done = subprocess.run(sidecars.words("a.gguf", "--port", "0", "--worker", sys.executable), capture_output=True, timeout=300)
    assert done.returncode == 2 and b"Traceback" not in done.stderr


def test_a_killed_worker_is_started_again(folder, model):
    with Running(folder, model) as found:
        first = found.worker()
        with found.held(), concurrent.futures.ThreadPoolExecutor() as pool:
            lost = pool.submit(found.ask, COMPLETE, LONG)
            until(lambda: found.gauge("requests_running") == 1)
            waiting = pool.submit(found.ask, CLASSIFY, {"prompt": TEXT, "labels": [" fox"]})
            until(lambda: found.gauge("requests_waiting") == 1)
            os.kill(first, signal.SIGKILL)
            answer = lost.result()
            assert answer.status == 503 and answer.error["category"] == "io" and answer.headers["retry-after"] == "1"
            assert "signal 9" in answer.error["found"]
            assert waiting.result().status == 200  # by the next worker
        assert found.worker() != first and found.gauge("worker_starts_total") == 2


def test_a_kill_in_the_middle_of_a_stream_is_an_event(folder, model):
    with Running(folder, model, worker=sidecars.held_program(folder)) as found:
        client = found.send("POST", COMPLETE, {**LONG, "stream": True})
        response = client.getresponse()
        assert response.status == 200 and response.readline().startswith(b"data: {")
        os.kill(found.worker(), signal.SIGKILL)
        *_, last, end = response.read().decode().split("\n\n")
        assert end == "" and json.loads(last.strip().removeprefix("data: "))["error"]["category"] == "io"
        client.close()
        assert found.ask(CLASSIFY, {"prompt": TEXT, "labels": [" fox"]}).status == 200


def test_a_worker_that_dies_at_once_is_started_with_growing_pauses(folder, model):
    stopped, begun = folder / "stopped", folder / "begun"
    failing = folder / "failing"
    note = f"read up _ < /proc/uptime; echo $up >> {begun}"
    failing.write_text(f'#!/bin/sh\nif [ -e {stopped} ]; then {note}; exit 7; fi\nexec {folder}/reflex "$@"\n')
    failing.chmod(0o755)
    sidecars.worker_program(folder)
    with Running(folder, model, worker=failing) as found:
        stopped.touch()
        os.kill(found.worker(), signal.SIGKILL)
        assert found.event()["state"] == "loading"
        failed = [found.event() for _ in range(3)]
        assert {(event["state"], event["category"], event["found"]) for event in failed} == {("failed", "io", "exit code 7")}
        health, refused = found.ask("/healthz"), found.ask(CLASSIFY, {"prompt": TEXT, "labels": [" fox"]})
        assert health.status == refused.status == 503 and refused.error["found"] == "exit code 7"
        assert int(refused.headers["retry-after"]) >= 1
        stopped.unlink()
        while found.event()["type"] != "ready":
            pass
        assert found.ask("/healthz").status == found.ask(CLASSIFY, {"prompt": TEXT, "labels": [" fox"]}).status == 200
    times = [float(line) for line in begun.read_text().split()]  # in hundredths
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(pauses) >= 2 and all(pause > 0.2 * 2**number - 0.02 for number, pause in enumerate(pauses)), pauses


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_requests_finish(folder, model, number, code):
    with Running(folder, model, "--grace", "60") as found, concurrent.futures.ThreadPoolExecutor() as pool:
        with found.held() as pid:
            asked = [pool.submit(found.ask, CLASSIFY, {"prompt": TEXT, "labels": [" fox"]}) for _ in range(3)]
            until(lambda: found.gauge("requests_waiting") == 2)
            found.process.send_signal(number)
            until(lambda: refused(found))
        assert [each.result().status for each in asked] == [200] * 3
        found.process.wait(300)
        assert found.process.returncode == code and not os.path.exists(f"/proc/{pid}")


def refused(found):
    """Whether it takes no more connections."""
    try:
        found.connect().close()
    except OSError:
        return True
    return False


def test_a_signal_does_not_wait_for_ever(folder, model):
    with Running(folder, model, "--grace", "0.5") as found, concurrent.futures.ThreadPoolExecutor() as pool:
        with found.held() as pid:
            asked = [pool.submit(found.ask, CLASSIFY, {"prompt": TEXT, "labels": [" fox"]}) for _ in range(2)]
            until(lambda: found.gauge("requests_waiting") == 1)
            found.process.terminate()
            answers = [each.result() for each in asked]
            assert [(each.status, each.error["category"]) for each in answers] == [(503, "state")] * 2
            found.process.wait(300)  # the worker, which does not run, has to be killed
        assert found.process.returncode == 0 and not os.path.exists(f"/proc/{pid}")


def test_a_killed_sidecar_leaves_no_worker(folder, model):
    with Running(folder, model) as found:
        pid = found.worker()
        found.process.kill()
        found.process.wait()
        until(lambda: gone(pid))


def gone(pid):
    """Whether a process has ended."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_a_local_socket(folder, model, tmp_path):
    with Running(folder, model, "--uds", str(tmp_path / "s")) as found:
        assert os.stat(tmp_path / "s").st_mode & 0o777 == 0o600
        assert found.ask(CLASSIFY, {"prompt": TEXT, "labels": [" fox"]}).status == 200
        second = subprocess.run(
            sidecars.words(model, "--uds", tmp_path / "s", "--worker", folder / "reflex"), capture_output=True, timeout=60
        )
        assert second.returncode == 8 and b"somebody listens" in second.stderr
        assert found.stop()[0] == 0 and not (tmp_path / "s").exists()
