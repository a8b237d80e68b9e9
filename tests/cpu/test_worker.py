"""The worker over stdin and stdout, as a process: answers, counts, cancelling, endings, and what is never imported."""

import json
import os
import signal
import subprocess

import process
import pytest
import tiny

import reflex
from reflex import errors
from reflex.client import Client
from reflex.worker import protocol

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}{{ extra }}"
ENGINE = ("--threads", "1", "--ctx", "512", "--backend", "cpu")
TEXT = "the quick brown fox jumps over a lazy dog "
VARIED = {"temperature": 2.0, "seed": 11}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf", template=TEMPLATE, ends=False)


@pytest.fixture(scope="module")
def worker(model):
    with Client(process.words("stdio", model, *ENGINE)) as client:
        yield client


@pytest.fixture(scope="module")
def inside(model):
    with reflex.load(model, backend="cpu", context=512, threads=1) as loaded:
        yield loaded


def spoken(model, *said, before="", code=0, argv=()):
    """The answers of a worker to lines (objects, or bytes as they are), without `ready`."""
    lines = b"".join([line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in said])
    done = process.reflex("stdio", model, *ENGINE, *argv, stdin=lines, before=before)
    assert done.returncode == code, done.stderr.decode()
    ready, *answers = map(json.loads, done.stdout.splitlines())
    assert ready["type"] == "ready"
    return answers


# ---- answers ----


def test_ready_says_what_is_there(worker, model):
    assert list(worker.ready) == ["schema_version", "type", "command", "model", "backend", "context", "chat", "phases"]
    assert worker.ready["command"] == "stdio" and worker.ready["model"] == str(model) and worker.ready["context"] == 512
    phases = list(worker.ready["phases"].values())
    assert phases == sorted(phases) and {"launch", "imports", "header", "kernels", "ready"} <= set(worker.ready["phases"])


def test_system1_is_the_decision_of_the_engine(worker, inside):
    settings = {"rule": "pmi", "temperature": 0.5, "terminator": ".", "prior": "so"}
    found = worker.system1(TEXT, [" fox", " dog"], **settings)
    expected = inside.system1(TEXT, [" fox", " dog"], **settings).to_dict()
    assert {name: found[name] for name in expected} == {**expected, "model": found["model"]}
    assert found["finish_reason"] == "stop" and found["prompt_tokens"] == len(inside.tokenize(TEXT))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 9},
        {"max_tokens": 9, "logprobs": True},
        {"max_tokens": 30, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "repeat_penalty": 1.2, "repeat_last": 8, **VARIED},
        {"max_tokens": 9, "regex": "[0-9]{3}"},
        {"max_tokens": 30, "json_schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
        {"max_tokens": 9, "choices": [" fox", " dog"]},
    ],
)
def test_generate_is_the_text_of_the_engine(worker, inside, settings):
    expected = inside.generate(TEXT, **settings)
    found = worker.request("generate", prompt=TEXT, **settings)
    assert {name: found[name] for name in expected.to_dict()} == {**expected.to_dict(), "model": found["model"]}
    tokens = list(stream := worker.generate(TEXT, **settings))
    assert {**stream.result, "timings": 0, "id": 0} == {**found, "timings": 0, "id": 0}
    assert "".join([token["text"] for token in tokens]) == expected.text
    assert [token["token_id"] for token in tokens if token["token_id"] is not None] == list(expected.token_ids)


def test_messages_and_variables_go_through_the_template(worker, inside):
    messages = [{"role": "user", "content": " fox? "}]
    plain = worker.request("generate", messages=messages, max_tokens=4)
    assert plain["token_ids"] == list(inside.generate("<user>fox?", max_tokens=4).token_ids)
    more = worker.request("generate", messages=messages, variables={"extra": "!"}, max_tokens=4)
    assert more["prompt_tokens"] == len(inside.tokenize("<user>fox?!"))
    assert worker.system1(messages=messages, candidates=["a"])["prompt_tokens"] == plain["prompt_tokens"]


def test_texts_and_ids_there_and_back(worker):
    ids = worker.tokenize(TEXT)
    assert worker.detokenize(ids) == TEXT
    by_ids, by_text = [worker.request("generate", prompt=prompt, max_tokens=3)["token_ids"] for prompt in (ids, TEXT)]
    assert by_ids == by_text


REFUSED = [
    ({"prompt": TEXT}, {"candidates": []}, "invalid_input"),
    ({}, {"candidates": ["a"]}, "invalid_input"),
    ({"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, {"candidates": ["a"]}, "invalid_input"),
    ({"messages": []}, {"candidates": ["a"]}, "invalid_input"),
    ({"messages": [{"role": "user", "content": "a"}], "variables": {"messages": 1}}, {"candidates": ["a"]}, "invalid_input"),
    ({"prompt": TEXT * 100}, {"candidates": ["a"]}, "context_overflow"),
    ({"prompt": "\ud800"}, {"candidates": ["a"]}, "invalid_input"),
    ({"prompt": "a"}, {"candidates": ["a"], "temperature": 0}, "invalid_input"),
    ({"prompt": []}, {"candidates": ["a"]}, "invalid_input"),
    ({"prompt": [512]}, {"candidates": ["a"]}, "invalid_input"),
    ({"prompt": TEXT}, {"max_tokens": 10**18}, "context_overflow"),
    ({"prompt": TEXT}, {"max_tokens": 0}, "invalid_input"),
    ({"prompt": TEXT}, {"top_p": 0}, "invalid_input"),
    ({"prompt": TEXT}, {"seed": 1 << 64}, "invalid_input"),
    ({"prompt": TEXT}, {"stop": [""]}, "invalid_input"),
    ({"prompt": TEXT}, {"regex": "("}, "invalid_input"),
    ({"prompt": TEXT}, {"regex": "a", "choices": ["b"]}, "invalid_input"),
    ({"prompt": TEXT}, {"json_schema": {"type": "strange"}}, "invalid_input"),
    ({"prompt": TEXT}, {"json_schema": True, "stop": ["a"]}, "invalid_input"),
]


@pytest.mark.parametrize(("start", "more", "category"), REFUSED)
def test_what_is_wrong_has_its_category_and_the_next_line_works(worker, start, more, category):
    with pytest.raises(errors.ReflexError) as refused:
        worker.request("system1" if "candidates" in more else "generate", **start, **more)
    assert refused.value.category == category
    assert worker.tokenize("a")


def test_answers_have_the_fields_of_the_page_and_ids_are_repeated(model):
    said = [
        {"command": "system1", "prompt": "a", "candidates": ["b"], "id": 0},
        {"command": "generate", "prompt": "a", "max_tokens": 2, "logprobs": True, "id": ""},
        {"command": "tokenize", "text": "a", "id": "\u00e9\n"},
        {"command": "detokenize", "token_ids": [5], "id": -3},
        {"command": "health"},
        {"command": "cancel", "id": "x", "target": "nothing"},
    ]
    answers = spoken(model, *said)
    assert len(answers) == len(said) == len(protocol.names())
    for asked, found in zip(said, answers, strict=True):
        head = ["schema_version", "type", *(["id"] if "id" in asked else [])]
        assert list(found) == [*head, *protocol.command(asked["command"]).RESULT]
        assert found.get("id") == asked.get("id") and found["type"] == "result"
        assert all(value >= 0 for value in found["timings"].values()) and "total" in found["timings"]
    assert answers[5]["cancelled"] is False
    assert (answers[4]["requests"], answers[4]["errors"]) == (5, 0) and answers[4]["resident_bytes"] > 1 << 20


def test_a_broken_line_is_an_error_and_the_next_one_works(model):
    good = {"command": "tokenize", "text": "a", "id": 1}
    huge = b'{"command": "tokenize", "text": "' + b"a" * (protocol.LONGEST_LINE + 10) + b'"}\n'
    last = b'{"command":"tokenize","text":"b"}'  # without an end
    answers = spoken(model, b"{\n", good, b"\n \n", b"\xff\xfe\n", good, b"null\n", huge, good, b"\x00" * 1000 + b"\n", last)
    expected = ["error", "result", "error", "result", "error", "error", "result", "error", "result"]
    assert [answer["type"] for answer in answers] == expected
    assert {answer["category"] for answer in answers if answer["type"] == "error"} == {"invalid_input"}
    assert answers[5]["message"] == "the request is too long"


# ---- counts and endings ----


def test_usage_is_counted_in_tokens(worker, inside):
    for prompt in ("fox", TEXT, TEXT * 7, "\u00e9\U0001f600 jumps"):
        found = worker.request("generate", prompt=prompt, max_tokens=5, **VARIED)
        assert found["prompt_tokens"] == len(inside.tokenize(prompt)) == len(worker.tokenize(prompt))
        assert found["completion_tokens"] == len(found["token_ids"])


def test_the_limit_is_told_from_the_end(worker, inside):
    assert worker.request("generate", prompt=TEXT, max_tokens=3)["finish_reason"] == "length"
    word = inside.generate(TEXT, max_tokens=12, **VARIED).text[5:8]
    found = worker.request("generate", prompt=TEXT, max_tokens=12, stop=[word], **VARIED)
    assert found["finish_reason"] == "stop" and word not in found["text"]


def test_a_stop_text_never_shows_in_a_stream(worker, inside):
    whole = inside.generate(TEXT, max_tokens=40, **VARIED).text
    for at in (1, len(whole) // 2, len(whole) - 3):
        stop = whole[at : at + 3]
        tokens = list(stream := worker.generate(TEXT, max_tokens=40, stop=[stop], **VARIED))
        text = "".join([token["text"] for token in tokens])
        assert text == stream.result["text"] == whole[: whole.index(stop)] and stream.result["finish_reason"] == "stop"


def test_an_end_token_ends_and_is_no_part_of_the_text(model, inside):
    """Every end token of the file is an end, whatever its spelling; the process is made to draw one."""
    before = f"import reflex.backends.cpu as b\nb.Plan.argmax = lambda self, row: {inside.tokenizer.eos}\n"
    (found,) = spoken(model, {"command": "generate", "prompt": TEXT}, before=before)
    assert (found["text"], found["token_ids"], found["completion_tokens"], found["finish_reason"]) == ("", [], 0, "stop")


# ---- cancelling ----

AT_TOKEN = """
import os
import reflex.generate as g
inner = g.Generation._step
def step(self):
    event = inner(self)
    if event.index == {index}:
        os.write({sink}, {line!r})
    return event
g.Generation._step = step
"""
WITHIN_TOKEN = """
import os
import reflex.backends.cpu as b
inner, count = b.Plan.evaluate, 0
def evaluate(self, *words):
    global count
    count += 1
    if count == {index} + 1:
        os.write({sink}, {line!r})
    return inner(self, *words)
b.Plan.evaluate = evaluate
"""


def moment(model, code, index, line, said):
    """Answers of a worker that gets `line` at a moment of its own work."""
    source, sink = os.pipe()
    words = process.words("stdio", model, *ENGINE, before=code.format(index=index, sink=sink, line=line))
    running = subprocess.Popen(words, stdin=source, stdout=subprocess.PIPE, pass_fds=[sink])
    os.close(source)
    os.write(sink, json.dumps(said).encode() + b"\n")
    answers = []
    while not answers or answers[-1].get("command") != "cancel":
        answers.append(json.loads(running.stdout.readline()))
    running.kill()
    running.wait()
    running.stdout.close()
    os.close(sink)
    return answers[1:]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("code", [AT_TOKEN, WITHIN_TOKEN], ids=["after it", "before it"])
@pytest.mark.parametrize("index", [0, 1, 7])
def test_cancel_stops_within_one_token(model, inside, code, index, stream):
    """The line comes before or after token `index` is computed: it is the last one."""
    said = {"command": "generate", "id": "g", "prompt": TEXT, "max_tokens": 300, "stream": stream, **VARIED}
    *tokens, result, cancel = moment(model, code, index, b'{"command":"cancel","id":"c","target":"g"}\n', said)
    assert result["finish_reason"] == "cancelled" and result["completion_tokens"] == index + 1
    whole = inside.generate(TEXT, max_tokens=300, **VARIED)
    assert tuple(result["token_ids"]) == whole.token_ids[: index + 1]
    assert whole.text.startswith(result["text"].rstrip("\ufffd"))
    assert not stream or "".join([token["text"] for token in tokens]) == result["text"]
    assert cancel["cancelled"] is True and cancel["id"] == "c"


def test_cancel_stops_a_long_prompt_between_batches(model):
    said = {"command": "system1", "id": "s", "prompt": [5 + i % 200 for i in range(900)], "candidates": [" fox", " dog"]}
    source, sink = os.pipe()
    code = WITHIN_TOKEN.format(index=0, sink=sink, line=b'{"command":"cancel"}\n')
    argv = process.words("stdio", model, "--threads", "1", "--ctx", "1024", "--backend", "cpu", before=code)
    running = subprocess.Popen(argv, stdin=source, stdout=subprocess.PIPE, pass_fds=[sink])
    os.close(source)
    os.write(sink, json.dumps(said).encode() + b"\n")
    _, result, cancel = [json.loads(running.stdout.readline()) for _ in range(3)]
    assert list(result) == ["schema_version", "type", "id", "command", "finish_reason", "timings"]
    assert result["finish_reason"] == "cancelled" and cancel["cancelled"] is True
    os.write(sink, json.dumps({**said, "prompt": TEXT}).encode() + b"\n")
    assert json.loads(running.stdout.readline())["best_text"]
    running.kill()
    running.wait()
    running.stdout.close()
    os.close(sink)


def test_another_target_is_not_cancelled(model):
    said = {"command": "generate", "id": 1, "prompt": TEXT, "max_tokens": 20}
    *_, result, cancel = moment(model, AT_TOKEN, 3, b'{"command":"cancel","target":"1"}\n', said)
    assert result["finish_reason"] == "length" and cancel["cancelled"] is False


def test_what_waits_can_be_cancelled_before_its_turn(model):
    long = {"command": "generate", "prompt": TEXT, "max_tokens": 4}
    answers = spoken(model, {**long, "id": "a"}, {**long, "id": "b"}, {"command": "cancel", "target": "b"}, {**long, "id": "c"})
    assert [answer.get("finish_reason") for answer in answers] == ["length", "cancelled", None, "length"]
    assert "text" not in answers[1] and answers[2]["cancelled"] is True
    answers = spoken(model, {**long, "id": "a"}, {**long, "id": "b"}, {"command": "cancel"}, {**long, "id": "c"})
    assert [answer.get("finish_reason") for answer in answers] == ["cancelled", "cancelled", None, "length"]


# ---- the process ----


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_answers_the_request_at_hand_and_refuses_the_rest(model, number, code):
    words = process.words("stdio", model, *ENGINE, before=process.HELD.format(at=40))
    running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    long = {"command": "generate", "prompt": TEXT, "max_tokens": 450, "stream": True, **VARIED}
    running.stdin.write(b"".join([json.dumps({**long, "id": n}).encode() + b"\n" for n in "ab"]) + b"no request\n")
    running.stdin.flush()
    assert [json.loads(running.stdout.readline())["type"] for _ in range(3)] == ["ready", "token", "token"]
    running.send_signal(number)
    answers = [json.loads(line) for line in running.stdout]
    assert running.wait(300) == code
    *_, first, second, third = answers
    assert first["finish_reason"] == "cancelled" and first["id"] == "a" and first["completion_tokens"] <= 40
    assert (second["type"], second["id"], second["category"]) == ("error", "b", "state")
    assert third["category"] == "invalid_input"
    running.stdin.close()
    running.stdout.close()


AT_READY = """
import os, signal
from reflex.cli.output import Output
inner = Output.record
def record(self, kind, fields):
    inner(self, kind, fields)
    os.kill(os.getpid(), signal.SIGTERM)
Output.record = record
"""


@pytest.mark.parametrize("before", ["", AT_READY], ids=["while it waits", "with the line ready"])
def test_a_signal_before_any_request_ends_it_at_once(model, before):
    words = process.words("stdio", model, *ENGINE, before=before)
    running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert json.loads(running.stdout.readline())["type"] == "ready"
    running.terminate()
    assert running.wait(300) == 0 and running.stdout.read() == b""
    running.stdin.close()
    running.stdout.close()


@pytest.mark.parametrize("index", [0, 3])
def test_a_client_that_is_gone_ends_the_worker_within_a_token(model, index):
    """Its stdout is closed in the middle of a generation that says nothing until it is done."""
    source, sink = os.pipe()
    argv = process.words("stdio", model, *ENGINE, before=AT_TOKEN.format(index=index, sink=sink, line=b"x"))
    running = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[sink])
    os.close(sink)
    running.stdout.readline()
    running.stdin.write(json.dumps({"command": "generate", "prompt": TEXT, "max_tokens": 480, "temperature": 2.0}).encode() + b"\n")
    running.stdin.flush()
    os.read(source, 1)
    running.stdout.close()
    assert running.wait(300) == 141 and running.stderr.read() == b""
    running.stdin.close()
    running.stderr.close()
    os.close(source)


def test_a_reader_that_stopped_ends_the_worker_in_time(model):
    argv = process.words("stdio", model, *ENGINE, "--stall", "0.3")
    running = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.readline()
    running.stdin.write(json.dumps({"command": "tokenize", "text": "the " * 40_000}).encode() + b"\n")
    running.stdin.flush()
    assert running.wait(300) == 8
    (line,) = running.stderr.read().decode().splitlines()
    assert line.startswith("reflex: io: nobody reads the answers")
    for end in (running.stdin, running.stdout, running.stderr):
        end.close()


LOADS = [
    (("no-such.gguf",), 3, "model_file"),
    (("MODEL", "--ctx", "100000"), 2, "invalid_input"),
    (("MODEL", "--stall", "0"), 2, "invalid_input"),
    (("MODEL", "--backend", "cuda"), 4, "device"),
]


@pytest.mark.parametrize(("argv", "code", "category"), LOADS)
def test_an_error_of_the_load_is_one_line_one_object_and_an_exit_code(model, argv, code, category):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = process.reflex("stdio", *[model if word == "MODEL" else word for word in argv], env=environment)
    (line,), (found,) = done.stderr.decode().splitlines(), map(json.loads, done.stdout.splitlines())
    assert done.returncode == code and line.startswith(f"reflex: {category}: ")
    assert found["type"] == "error" and found["category"] == category
    with pytest.raises(errors.ReflexError) as raised:
        Client(process.words("stdio", *[model if word == "MODEL" else word for word in argv]))
    assert raised.value.category == category or category == "device"


def test_a_device_that_fails_is_answered_and_ends_the_worker(model):
    before = "import reflex.backends.cpu as b\nfrom reflex.errors import DeviceError\n"
    before += "def evaluate(self, *words):\n    raise DeviceError('the device is lost')\nb.Plan.evaluate = evaluate\n"
    answers = spoken(model, *[{"command": "generate", "prompt": "a", "id": n} for n in (1, 2)], before=before, code=4)
    assert [(answer["type"], answer["category"], answer["id"]) for answer in answers] == [("error", "device", 1)]


@pytest.mark.parametrize(("raised", "category"), [("RuntimeError('oh')", "internal"), ("MemoryError", "out_of_memory")])
def test_a_mistake_of_the_engine_is_answered_and_the_next_request_works(model, inside, raised, category):
    before = "import reflex.backends.cpu as b\ninner, count = b.Plan.evaluate, 0\n"
    before += f"def evaluate(self, *words):\n    global count\n    count += 1\n    if count == 3: raise {raised}\n"
    before += "    return inner(self, *words)\nb.Plan.evaluate = evaluate\n"
    said = {"command": "generate", "prompt": TEXT, "max_tokens": 6}
    first, second = spoken(model, said, said, before=before)
    assert (first["type"], first["category"]) == ("error", category)
    assert second["token_ids"] == list(inside.generate(TEXT, max_tokens=6).token_ids)


def test_a_model_that_is_written_to_is_not_answered_from(model, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(model.read_bytes())
    with Client(process.words("stdio", path, *ENGINE)) as client:
        assert client.system1("a", ["b"])["best_text"] == "b"
        with open(path, "r+b") as file:
            file.seek(0, 2)
            file.write(b"x")
        for command, fields in (("system1", {"candidates": ["b"]}), ("generate", {"max_tokens": 1})):
            with pytest.raises(errors.ModelFileError, match="written to while it was used"):
                client.request(command, prompt="a", **fields)


NEVER = {"numpy", "numba", "typer", "json", "re", "socket", "threading", "subprocess", "typing", "dataclasses", "reflex.api"}


def test_nothing_heavy_is_imported_and_little_before_ready(model):
    before = "import sys\nimport reflex.cli.output as o\ninner = o.Output.record\n"
    before += "def record(self, kind, fields):\n    fields['modules'] = sorted(sys.modules)\n    inner(self, kind, fields)\n"
    before += "o.Output.record = record\n"
    done = process.reflex("stdio", model, *ENGINE, before=before, stdin=b"")
    (ready,) = map(json.loads, done.stdout.splitlines())
    seen = set(ready["modules"])
    assert not seen & NEVER
    late = {"select", "_json", "_socket", "reflex.worker.loop", "reflex.generate", "reflex.score", "reflex.constrain"}
    assert not seen & late, "what only requests need comes after ready"


def test_requests_import_nothing_heavy_either(model):
    before = "import atexit, sys, posix\nfrom reflex.cli import front\n"
    before += "def leave(code):\n    posix.write(2, ' '.join(sys.modules).encode())\n    posix._exit(code)\nfront._exit = leave\n"
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8, "json_schema": {"type": "boolean"}}
    said = [{"command": "system1", "prompt": "a", "candidates": ["b"]}, {"command": "generate", **chat}, {"command": "health"}]
    lines = b"".join([json.dumps(line).encode() + b"\n" for line in said])
    done = process.reflex("stdio", model, *ENGINE, stdin=lines, before=before)
    assert done.stdout.count(b'"result"') == 3
    assert not set(done.stderr.decode().split()) & NEVER
