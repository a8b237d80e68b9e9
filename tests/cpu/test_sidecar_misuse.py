"""What clients do to a sidecar: too many, too much, too slow, broken, half gone, without a token. The next request always works."""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import struct
import time
from pathlib import Path

import process
import pytest
import sidecars
from sidecars import JSON, TEXT, Answer, Running, until

CHAT, COMPLETE, CLASSIFY, SYSTEMONE = "/v1/chat/completions", "/v1/completions", "/v1/classify", "/v1/systemone"
LABELS = {"prompt": TEXT, "labels": [" fox"]}
LONG = {"prompt": TEXT, "max_tokens": 400, "temperature": 2.0, "seed": 11}
MESSAGES = [{"role": "user", "content": "fox?"}]
QUEUE, BODY = 3, 20_000
OPTIONS = ("--queue", str(QUEUE), "--max-body", str(BODY))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sidecar")


@pytest.fixture(scope="module")
def model(folder):
    return sidecars.tiny_model(folder)


@pytest.fixture(scope="module")
def running(folder, model):
    with Running(folder, model, *OPTIONS) as found:
        yield found
        assert found.gauge("worker_starts_total") == 1  # whatever was done to it
        assert "Traceback" not in found.stop()[1]


@pytest.fixture(scope="module")
def impatient(folder, model):
    """One whose clocks for slow clients are short."""
    with Running(folder, model, *OPTIONS, "--read-timeout", "1", "--stall", "1") as found:
        yield found


@pytest.fixture(autouse=True)
def unharmed(running):
    yield
    assert running.ask(CLASSIFY, LABELS).status == 200
    assert running.gauge("requests_running") == running.gauge("requests_waiting") == 0


def spoken(running, data, seconds=process.SECONDS):
    """All that comes back for bytes, to the end of the connection."""
    with contextlib.closing(running.connect(seconds)) as found:
        found.sendall(data)
        return heard(found)


def heard(found):
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := found.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def post(path, body, *more):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(data)}", *more]
    return "\r\n".join([*head, "", ""]).encode() + data


# ---- too many ----


def test_a_full_queue_is_429_and_the_others_are_answered(running):
    with concurrent.futures.ThreadPoolExecutor(20) as pool, running.held():
        asked = [pool.submit(running.ask, CLASSIFY, LABELS) for _ in range(20)]
        until(lambda: sum([each.done() for each in asked]) == 20 - QUEUE - 1)
        refused = [each.result() for each in asked if each.done()]
        assert {each.status for each in refused} == {429} and all(1 <= int(each.headers["retry-after"]) <= 60 for each in refused)
        assert refused[0].error["code"] == "queue_full" and refused[0].error["type"] == "rate_limit_error"
        assert running.gauge("requests_waiting") == QUEUE and running.ask("/healthz").status == 200
        os.kill(running.worker(), signal.SIGCONT)
        assert sorted([each.result().status for each in asked]) == [200] * (QUEUE + 1) + [429] * (19 - QUEUE)


def test_clients_that_leave_give_up_their_places(running):
    left = running.gauge('cancelled_total{why="left"}')
    with running.held():
        clients = [running.send("POST", COMPLETE, LONG) for _ in range(QUEUE + 1)]
        until(lambda: running.gauge("requests_waiting") == QUEUE)
        for client in clients:
            client.close()
        until(lambda: running.gauge("requests_waiting") == 0)
        assert running.gauge("requests_running") == 1  # what was sent has to be cancelled by the worker, which does not run
    until(lambda: running.gauge('cancelled_total{why="left"}') == left + QUEUE + 1)


def test_a_client_that_leaves_cancels_in_the_worker(folder, model):
    with Running(folder, model, worker=sidecars.held_program(folder)) as found:
        for number in range(5):
            client = found.send("POST", COMPLETE, {**LONG, "stream": True})
            response = client.getresponse()
            response.readline()
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            response.close()
            client.close()
            until(lambda number=number: found.gauge('cancelled_total{why="left"}') == number + 1)
            until(lambda: found.gauge("requests_running") == 0)  # which otherwise takes minutes
            assert found.gauge('tokens_total{kind="completion"}') == 0


def test_time_runs_out_and_the_worker_is_free_again(folder, model):
    with Running(folder, model, "--timeout", "3", worker=sidecars.held_program(folder)) as found:
        with found.held(), concurrent.futures.ThreadPoolExecutor() as pool:
            asked = [pool.submit(found.ask, COMPLETE, LONG) for _ in range(2)]
            answers = [each.result() for each in asked]
            assert [(each.status, each.error["code"]) for each in answers] == [(504, "request_timeout")] * 2
        assert found.gauge('cancelled_total{why="late"}') == 2
        until(lambda: found.gauge("requests_running") == 0)
        client = found.send("POST", COMPLETE, {**LONG, "stream": True})
        response = client.getresponse()
        response.readline()
        *_, last, _ = response.read().decode().split("\n\n")
        assert json.loads(last.strip().removeprefix("data: "))["error"]["code"] == "request_timeout"
        client.close()
        assert found.ask(CLASSIFY, LABELS).status == 200


def test_connections_have_a_limit(folder, model):
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"
    with Running(folder, model, before=few) as found:
        crowd = [found.connect() for _ in range(60)]
        until(lambda: sum([is_closed(each) for each in crowd]) >= 20)
        for each in crowd:
            each.close()
        until(lambda: found.ask(CLASSIFY, LABELS).status == 200)


def is_closed(found):
    found.settimeout(0)
    try:
        return not found.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# ---- too much, and nonsense ----


def test_large_bodies_are_413_however_they_come(running, impatient):
    for size in (BODY + 1, 3 * BODY, 100 * BODY):
        answer = running.ask(CLASSIFY, b" " * size)
        assert answer.status == 413 and answer.error["code"] == "body_too_large" and answer.headers["connection"] == "close"
    told = spoken(impatient, post(CLASSIFY, b"", "Expect: 100-continue").replace(b"Content-Length: 0", b"Content-Length: 99999999"))
    assert told.startswith(b"HTTP/1.1 413") and b"100 Continue" not in told
    chunks = b"".join([b"1000\r\n" + b" " * 4096 + b"\r\n" for _ in range(10)])
    head = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert spoken(impatient, head + chunks + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert running.ask(CLASSIFY, json.dumps(LABELS).encode().ljust(BODY)).status == 200


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"prompt": "a", "labels": ["b"], "labels": ["c"]}',
    b"[" * 15_000,
    b'{"a":' * 3_000,
]
BROKEN += [
    b'{"labels": NaN}',
    b'{"labels": 1e999}',
    b'{"labels": ' + b"9" * 9000 + b"}",
    b'{"labels": [], "prompt": "a"} x',
    b"\0" * 9,
]


@pytest.mark.parametrize("body", BROKEN, ids=lambda body: ascii(body[:20]))
def test_bodies_that_are_none(running, body):
    for path in (CHAT, COMPLETE, CLASSIFY, SYSTEMONE):
        answer = running.ask(path, body)
        assert (
            answer.status == 400 and answer.error["category"] == "invalid_input" and answer.error["type"] == "invalid_request_error"
        )


ONE = {"type": "noul", "instructions": "a?"}
REFUSED = [
    (CHAT, {"messages": []}, "messages", "invalid_input"),
    (CHAT, {"messages": "x"}, "messages", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported"),
    (CHAT, {"messages": MESSAGES, "functions": [{}]}, "functions", "unsupported"),
    (CHAT, {"messages": MESSAGES, "tool_choice": "required"}, "tool_choice", "unsupported"),
    (CHAT, {"messages": MESSAGES, "n": 2}, "n", "unsupported"),
    (CHAT, {"messages": MESSAGES, "n": True}, "n", "unsupported"),
    (CHAT, {"messages": MESSAGES, "logit_bias": {"5": 1}}, "logit_bias", "unsupported"),
    (CHAT, {"messages": MESSAGES, "presence_penalty": 0.5}, "presence_penalty", "unsupported"),
    (CHAT, {"messages": MESSAGES, "modalities": ["audio"]}, "modalities", "unsupported"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type", "unsupported"),
    (CHAT, {"messages": [{"role": "user", "content": None}]}, "messages[0].content", "unsupported"),
    (CHAT, {"messages": MESSAGES, "temprature": 1}, "temprature", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "max_tokens": 1, "max_completion_tokens": 1}, "max_tokens", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "stream_options": {"include_usage": True}}, "stream_options", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "seed": 1 << 64}, "seed", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "temperature": -1}, "temperature", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "temperature": True}, "temperature", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "response_format": {"type": "xml"}}, "response_format.type", "invalid_input"),
    (CHAT, {"messages": MESSAGES, "max_tokens": 10_000}, None, "context_overflow"),
    (COMPLETE, {}, "prompt", "invalid_input"),
    (COMPLETE, {"prompt": ["a", "b"]}, "prompt[0]", "invalid_input"),
    (COMPLETE, {"prompt": [10**6]}, "token 0", "invalid_input"),
    (COMPLETE, {"prompt": "a\ud800"}, None, "invalid_input"),
    (COMPLETE, {"prompt": "a", "best_of": 3}, "best_of", "unsupported"),
    (COMPLETE, {"prompt": "a", "echo": True}, "echo", "unsupported"),
    (COMPLETE, {"prompt": "a", "logprobs": 21}, "logprobs", "invalid_input"),
    (COMPLETE, {"prompt": "a", "stop": ["b"], "response_format": {"type": "json_object"}}, None, "invalid_input"),
    (CLASSIFY, {"labels": ["a"]}, "prompt", "invalid_input"),
    (CLASSIFY, {"labels": ["a"], "prompt": "a", "messages": MESSAGES}, "prompt", "invalid_input"),
    (CLASSIFY, {"labels": [], "prompt": "a"}, "labels", "invalid_input"),
    (CLASSIFY, {"labels": ["a", 1], "prompt": "a"}, "labels[1]", "invalid_input"),
    (CLASSIFY, {"labels": ["a"], "prompt": "a", "temperature": 0}, "temperature", "invalid_input"),
    (CLASSIFY, {"labels": ["a"], "prompt": "a", "rule": "best"}, "rule", "invalid_input"),
    (SYSTEMONE, {"questions": {"a": ONE}}, "state", "invalid_input"),
    (SYSTEMONE, {"state": "a", "questions": {}}, "questions", "invalid_input"),
    (SYSTEMONE, {"state": None, "questions": {"a": ONE}}, "state", "invalid_input"),
    (SYSTEMONE, {"state": "a", "questions": {"a": {"type": "noul"}}}, "questions.a.instructions", "invalid_input"),
    (SYSTEMONE, {"state": "a", "questions": {"a": {**ONE, "type": "choice"}}}, "questions.a.criteria", "invalid_input"),
    (SYSTEMONE, {"state": "a", "questions": {"a": {**ONE, "type": "choice", "criteria": {"": 1}}}}, None, "invalid_input"),
    (SYSTEMONE, {"state": "a", "questions": {"a": {**ONE, "type": "score", "criteria": ["x"]}}}, None, "invalid_input"),
    (SYSTEMONE, {"state": "a", "questions": {"a": ONE}, "images": ["data:,"]}, "images", "unsupported"),
]


@pytest.mark.parametrize("path, body, where, category", REFUSED, ids=lambda value: ascii(value)[:60])
def test_requests_that_are_refused(running, path, body, where, category):
    for stream in (False, True) if path in (CHAT, COMPLETE) and "stream_options" not in body else (False,):
        answer = running.ask(path, {**body, "stream": True} if stream else body)
        error = answer.error
        assert (answer.status, error["category"]) == (400, category), error
        assert error["message"] and (where is None or error["where"] == where == error["param"]), error


def test_other_types_methods_and_paths(running):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        assert running.ask(CLASSIFY, LABELS, {"content-type": kind}).status == 415
    assert running.ask(CLASSIFY, LABELS, {"content-type": "Application/JSON ; charset=utf-8"}).status == 200
    assert running.ask(CLASSIFY, LABELS, {**JSON, "content-encoding": "gzip"}).status == 415
    wrong = running.ask(CLASSIFY)
    assert wrong.status == 405 and wrong.headers["allow"] == "POST"
    assert running.ask("/healthz", {}, method="POST").status == 405
    for path in ("/", "/v1", "/v1/classify/", "/../etc/passwd", "/%00", "/v1/models/"):
        assert running.ask(path).error["code"] == "not_found"


NO_HTTP = [
    b"hello\r\n\r\n",
    b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\r\n" * 50,
]
NO_HTTP += [
    b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 20_000,
]
NO_HTTP += [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]


@pytest.mark.parametrize("data", NO_HTTP, ids=lambda data: ascii(data[:20]))
def test_what_is_no_http(impatient, data):
    said = spoken(impatient, data)
    assert not said or said.split()[1] in (b"400", b"404"), said


# ---- too slow, half gone ----


def test_heads_and_bodies_that_do_not_come(impatient):
    whole = post(CLASSIFY, LABELS)
    for part in (b"", whole[:10], whole[:60], b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /hea"):
        begun = time.monotonic()
        assert spoken(impatient, part).count(b"HTTP/1.1 ") == (part[:3] == b"GET")
        assert time.monotonic() - begun > 0.9
    assert spoken(impatient, whole[:-5]).startswith(b"HTTP/1.1 408")


def test_drops_of_a_head_do_not_set_the_clock_back(impatient):
    end = time.monotonic() + 60
    with contextlib.closing(impatient.connect()) as found, contextlib.suppress(ConnectionError):
        while time.monotonic() < end:
            found.sendall(b"G")
            time.sleep(0.05)
        pytest.fail("it waits for ever")


def test_a_client_that_does_not_read_is_given_up(folder, model, tmp_path):
    """At a local socket, which holds less than TCP does for who does not read."""
    with Running(folder, model, "--uds", str(tmp_path / "s"), "--stall", "1") as found, contextlib.closing(found.connect()) as deaf:
        deaf.sendall(post(COMPLETE, {**LONG, "stream": True, "logprobs": 20}) * 4)
        until(lambda: f'requests_total{{path="{COMPLETE}"' in found.ask("/metrics").body.decode())  # it is over
        said = heard(deaf)
        assert said.count(b"HTTP/1.1 200") == 1 and b"[DONE]" not in said


def test_pipelined_requests_are_answered_in_order(running):
    asked = [post(CLASSIFY, {**LABELS, "labels": [label]}) for label in (" fox", " dog", " the")]
    with contextlib.closing(running.connect()) as found:
        found.sendall(b"".join(asked) + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = heard(found)
    labels = [json.loads(part.partition(b"\r\n\r\n")[2])["label"] for part in said.split(b"HTTP/1.1 ")[1:4]]
    assert labels == [" fox", " dog", " the"] and said.endswith(b"}") and said.count(b"HTTP/1.1 200") == 4


def test_a_half_closed_connection_is_one_that_left(running):
    with contextlib.closing(running.connect()) as found:
        found.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        found.shutdown(socket.SHUT_WR)
        assert heard(found).startswith(b"HTTP/1.1 200")  # what needs no worker is answered
    left = running.gauge('cancelled_total{why="left"}')
    with contextlib.closing(running.connect()) as found, running.held():
        found.sendall(post(COMPLETE, LONG))
        found.shutdown(socket.SHUT_WR)
        assert heard(found) == b""
    until(lambda: running.gauge('cancelled_total{why="left"}') == left + 1)


def test_connections_are_used_again_after_errors(running):
    client = running.client()
    for body, status in ((b"{", 400), (json.dumps(LABELS).encode(), 200), (b"[]", 400), (json.dumps(LABELS).encode(), 200)):
        client.request("POST", CLASSIFY, body, JSON)
        assert Answer(client.getresponse()).status == status
    client.close()


def test_http_1_0(running):
    said = spoken(running, post(COMPLETE, {**LONG, "stream": True, "max_tokens": 3}).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b" 200 " in said.splitlines()[0] and said.endswith(b"data: [DONE]\n\n")


# ---- the token ----


def test_a_token_is_asked_for(folder, model, tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    with Running(folder, model, "--token-file", str(tmp_path / "token")) as found:
        for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
            answer = found.ask(path)
            assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer s3cre", "Bearer s3cret ", "Bearer", "s3cret", "Basic s3cret", "bearer S3CRET", "Bearer s3cret\u00e9"):
            headers = {**JSON, "authorization": wrong.encode("latin-1")}
            assert found.ask(CLASSIFY, LABELS, headers).status == (200 if wrong == "Bearer s3cret " else 401), wrong
        assert found.ask(CLASSIFY, LABELS, {**JSON, "authorization": "bearer s3cret"}).status == 200
        assert found.ask("/healthz").status == found.ask("/ping").status == 200
        said = found.ask("/openapi.json", headers={"authorization": "Bearer s3cret"}).said
        assert said["paths"]["/v1/classify"]["post"]["security"] and "401" in said["paths"]["/v1/models"]["get"]["responses"]


def test_the_token_stays_with_the_sidecar(folder, model):
    with Running(folder, model, environment={"REFLEX_TOKEN": "s3cret"}) as found:
        assert found.ask("/v1/models").status == 401
        inherited = Path(f"/proc/{found.worker()}/environ").read_bytes()
        assert b"REFLEX_TOKEN" not in inherited and b"PATH=" in inherited
