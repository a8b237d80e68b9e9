"""The worker at a local socket: who may connect and when, whose file it is, clients that leave, wait, or do not read."""

import json
import os
import random
import select
import signal
import socket
import stat
import subprocess
import threading
import time

import process
import pytest
import tiny

from bench.soak import Raw, line, start
from reflex import errors
from reflex.client import Client

ENGINE = ("--threads", "1", "--ctx", "512", "--backend", "cpu")
TEXT = "the quick brown fox jumps over a lazy dog "
BULKY = {"command": "tokenize", "text": "the " * 120_000}  # its answer is larger than what the system holds for a reader
HELD = process.HELD.format(at=40)
LONG = {"command": "generate", "prompt": TEXT, "max_tokens": 450, "stream": True, "temperature": 2.0, "seed": 11}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write("llama-smollm", tmp_path_factory.mktemp("models") / "tiny.gguf", ends=False)


@pytest.fixture
def begun(model, tmp_path):
    """A function that starts workers; they are killed at the end."""
    running = []

    def begin(path=tmp_path / "s", argv=(), before=""):
        worker, _ = start(process.words("uds", model, path, *ENGINE, *argv, before=before), path)
        running.append(worker)
        return worker

    yield begin
    for worker in running:
        worker.kill()
        worker.wait()
        worker.stdout.close()


def refused(model, path, before="", **options):
    """(exit code, the line on stderr, the error object) of a worker that does not start."""
    done = process.reflex("uds", model, path, *ENGINE, before=before, **options)
    (text,), (said,) = done.stderr.decode().splitlines(), map(json.loads, done.stdout.splitlines())
    assert said["type"] == "error" and text.startswith(f"reflex: {said['category']}: ")
    return done.returncode, text, said


# ---- the file ----


def test_the_socket_is_its_owners_alone_from_the_first_moment_on(begun, tmp_path):
    """Seen before it listens, under a umask that would let everybody in."""
    before = "import os; os.umask(0)\nimport reflex.worker.socket as s\ninner = s.identity\n"
    before += "def identity(path):\n    assert os.lstat(path).st_mode & 0o777 == 0o600\n    return inner(path)\n"
    before += "s.identity = identity\n"
    worker = begun(before=before)
    assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o600
    worker.terminate()
    assert worker.wait(300) == 0 and not (tmp_path / "s").exists()


def test_the_mask_is_as_before_and_the_socket_is_there_before_the_model(model, tmp_path):
    before = "import os, sys, reflex.open as o\nos.umask(0o27)\ndef opened(*words, **named):\n"
    before += "    os.write(2, b'%o %o' % (os.umask(0), os.lstat(sys.argv[3]).st_mode & 0o777))\n    raise KeyboardInterrupt\n"
    done = process.reflex("uds", model, tmp_path / "s", *ENGINE, before=before + "o.open_model = opened\n")
    assert done.stderr == b"27 600"
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("size", [107, 108, 300])
def test_a_path_that_is_too_long_is_refused_with_the_limit(model, tmp_path, begun, size):
    path = f"{tmp_path}/" + "x" * (size - len(str(tmp_path)) - 1)
    if size <= 107:
        begun(path)
        with Client(path) as client:
            assert client.tokenize("a")
        return
    code, _, said = refused(model, path)
    assert (code, said["category"], said["expected"], said["found"]) == (2, "invalid_input", "1 to 107 bytes", size)


def test_a_folder_that_is_not_there_is_one_line(model, tmp_path):
    code, _, said = refused(model, tmp_path / "no" / "s")
    assert (code, said["category"], said["found"]) == (8, "io", "No such file or directory") and said["where"].endswith("/no/s")


def test_a_relative_path_works(model, tmp_path):
    words = process.words("uds", model, "s", *ENGINE)
    running = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path)
    assert json.loads(running.stdout.readline())["socket"] == "s"
    with Client(tmp_path / "s") as client:
        assert client.tokenize("a")
    running.terminate()
    assert running.wait(300) == 0 and not (tmp_path / "s").exists()
    running.stdout.close()


@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_is_no_socket_is_not_touched(model, tmp_path, what):
    path = tmp_path / "s"
    {"file": lambda: path.write_text("mine"), "folder": path.mkdir, "link": lambda: path.symlink_to(tmp_path / "x")}[what]()
    code, text, said = refused(model, path)
    assert (code, said["category"]) == (2, "invalid_input") and "no socket" in text
    assert os.path.lexists(path) and (what != "file" or path.read_text() == "mine")


def test_a_living_worker_keeps_its_socket(model, begun, tmp_path):
    begun()
    code, text, said = refused(model, tmp_path / "s")
    assert (code, said["category"]) == (8, "state") and "somebody listens" in text
    with Client(tmp_path / "s") as client:
        assert client.tokenize("a")


def test_a_living_worker_with_a_full_queue_keeps_its_socket(model, tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for client in waiting:
        client.setblocking(False)
        client.connect_ex(str(tmp_path / "s"))
    assert refused(model, tmp_path / "s")[2]["category"] == "state"
    for end in (listener, *waiting):
        end.close()


def test_a_socket_whose_worker_was_killed_is_taken_over(begun, tmp_path):
    """At random points of its life: while it loads, waits, answers."""
    rng = random.Random(3)
    for _ in range(4):
        worker = begun()
        client = Raw(tmp_path / "s")
        client.send(line(LONG) * rng.randrange(3))
        time.sleep(0.03 * rng.random())
        worker.kill()
        worker.wait()
        client.close()
        assert (tmp_path / "s").is_socket()
    begun()
    with Client(tmp_path / "s") as client:
        assert client.generate(TEXT, max_tokens=3).rest()["completion_tokens"] == 3


def test_a_worker_killed_while_it_starts_leaves_nothing_that_matters(model, begun, tmp_path):
    for milliseconds in (5, 15, 25, 40):
        running = subprocess.Popen(process.words("uds", model, tmp_path / "s", *ENGINE), stdout=subprocess.DEVNULL)
        time.sleep(milliseconds / 1000)
        running.kill()
        running.wait()
    begun()


def test_two_that_start_at_once_do_not_both_take_it_over(model, tmp_path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "s"))
    dead.close()
    words = process.words("uds", model, tmp_path / "s", *ENGINE)
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(3)]
    said = [json.loads(worker.stdout.readline()) for worker in running]
    assert sorted(answer["type"] for answer in said) == ["error", "error", "ready"]
    assert {answer["category"] for answer in said if answer["type"] == "error"} == {"state"}
    with Client(tmp_path / "s") as client:
        assert client.health()["process"] == running[[answer["type"] for answer in said].index("ready")].pid
    for worker in running:
        worker.terminate()
        worker.wait(300)
        worker.stdout.close()


def test_a_socket_that_became_anothers_is_not_removed(begun, tmp_path):
    worker = begun()
    os.unlink(tmp_path / "s")
    (tmp_path / "s").write_text("mine")
    worker.terminate()
    assert worker.wait(300) == 0 and (tmp_path / "s").read_text() == "mine"


def test_a_load_that_fails_leaves_no_socket(tmp_path):
    assert refused(tmp_path / "none.gguf", tmp_path / "s")[0] == 3
    assert not (tmp_path / "s").exists()


# ---- clients ----


def test_a_client_may_connect_while_the_model_is_loaded(model, tmp_path):
    running = subprocess.Popen(process.words("uds", model, tmp_path / "s", *ENGINE), stdout=subprocess.PIPE)
    with Client(tmp_path / "s") as client:
        assert client.tokenize("a")
    running.terminate()
    assert running.wait(300) == 0
    running.stdout.close()


def test_others_wait_for_their_turn(begun, tmp_path):
    """A second and third client are answered, in order, when the first one has left."""
    begun()
    first = Raw(tmp_path / "s")
    first.send(line({**LONG, "max_tokens": 30}))
    others = [Raw(tmp_path / "s") for _ in range(2)]
    for number, client in enumerate(others):
        client.send(line({"command": "tokenize", "text": "a", "id": number}))
    assert first.last()[1]["completion_tokens"] == 30
    others[0].socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        others[0].answer()
    first.close()
    others[0].socket.settimeout(60)
    assert others[0].answer()["id"] == 0
    others[0].close()
    assert others[1].answer()["id"] == 1
    others[1].close()


def test_a_silent_client_gives_way_only_where_another_waits(begun, tmp_path):
    begun(argv=("--idle", "0.2"))
    silent = Raw(tmp_path / "s")
    silent.send(b'{"comm')
    time.sleep(0.6)
    silent.send(b'and": "health"}\n')
    assert silent.answer()["command"] == "health", "nobody else wanted the turn"
    other = Raw(tmp_path / "s")
    other.send(line({"command": "tokenize", "text": "a", "id": 9}))
    assert other.answer()["id"] == 9
    assert silent.answer() is None
    silent.close()
    other.close()


LOGGED = """
import os, time
import reflex.backends.cpu as b
log, inner = open({log!r}, "ab", 0), b.Plan.evaluate
def evaluate(self, *words):
    log.write(b"x")
    while os.stat({log!r}).st_size == 10 and not os.path.exists({gate!r}):
        time.sleep(0.001)
    return inner(self, *words)
b.Plan.evaluate = evaluate
"""


def test_a_client_that_leaves_cancels_its_request_within_a_token(model, begun, tmp_path):
    """Counted by the tokens that are computed: the tenth is not done before the client has closed its end."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    begun(before=LOGGED.format(log=str(log), gate=str(gate)))
    for streams in (True, False):
        log.write_bytes(b"")
        client = Raw(tmp_path / "s")
        client.send(line({**LONG, "stream": streams}))
        while log.stat().st_size < 10:
            time.sleep(0.001)
        client.close()
        gate.touch()
        with Client(tmp_path / "s") as other:
            counts = other.health()
        assert counts["errors"] == 0
        assert log.stat().st_size == 10, "it did not go on"
        gate.unlink()


def test_half_a_goodbye_is_none(begun, tmp_path):
    """A client that ends its side of the connection still gets all of its answers."""
    begun()
    client = Raw(tmp_path / "s")
    client.send(line({"command": "tokenize", "text": "a"}) + line({**LONG, "max_tokens": 5}) + b'{"command": "health"}')
    client.socket.shutdown(socket.SHUT_WR)
    assert client.answer()["command"] == "tokenize"
    assert client.last()[1]["completion_tokens"] == 5
    assert client.answer()["command"] == "health" and client.answer() is None
    client.close()


def test_a_client_that_does_not_read_is_given_up(begun, tmp_path):
    begun(argv=("--stall", "0.3"))
    deaf = Raw(tmp_path / "s")
    deaf.send(line(BULKY))
    with Client(tmp_path / "s") as client:
        assert client.tokenize("a")
    deaf.close()


def test_a_client_that_sends_and_sends_before_it_reads_gets_everything(begun, tmp_path):
    """Both directions are full for a while; nothing waits for the other for ever."""
    begun()
    client, count = Raw(tmp_path / "s"), 3000
    data = b"".join([line({"command": "tokenize", "text": TEXT * 20, "id": number}) for number in range(count)])
    sender = threading.Thread(target=client.send, args=(data,))
    sender.start()
    time.sleep(0.3)
    for number in range(count):
        assert client.answer()["id"] == number
    sender.join()
    client.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_answers_removes_and_ends(model, tmp_path, number, code):
    worker, _ = start(process.words("uds", model, tmp_path / "s", *ENGINE, before=HELD), tmp_path / "s")
    client, waiting = Raw(tmp_path / "s"), Raw(tmp_path / "s")
    client.send(line(LONG))
    client.answer()
    worker.send_signal(number)
    assert client.last()[1]["finish_reason"] == "cancelled"
    assert worker.wait(300) == code and not (tmp_path / "s").exists()
    assert client.answer() is None and waiting.answer() is None
    for end in (client, waiting, worker.stdout):
        end.close()


def test_a_signal_does_not_wait_long_for_a_client_that_does_not_read(begun, tmp_path):
    worker = begun(argv=("--stall", "600"))
    deaf = Raw(tmp_path / "s")
    deaf.send(line(BULKY))
    select.select([deaf.socket], [], [])  # a part of it has come, for more there is no room
    worker.terminate()
    assert worker.wait(300) == 0 and not (tmp_path / "s").exists()
    deaf.close()


# ---- the client of this package ----


def test_the_client_says_what_it_lacks(begun, tmp_path):
    with pytest.raises(errors.InputOutputError, match="no worker answers"):
        Client(tmp_path / "nobody", wait=0)
    with pytest.raises(errors.InputOutputError, match="cannot start"):
        Client([tmp_path / "no program"])
    with pytest.raises(errors.InputOutputError, match="the worker is gone"):
        Client(["true"])
    worker = begun(before=HELD)
    client = Client(tmp_path / "s")
    tokens = client.generate(TEXT, max_tokens=400, temperature=2.0)
    next(tokens)
    with pytest.raises(errors.StateError, match="still under way"):
        client.health()
    assert tokens.cancel()["finish_reason"] == "cancelled" and list(tokens) == []
    client.cancel()
    assert client.health()["cancelled"] == 1, "the answer to a cancel of nothing is not taken for another's"
    worker.kill()
    with pytest.raises(errors.InputOutputError, match="the worker is gone"):
        client.health()
    with pytest.raises(errors.StateError, match="the client was closed"):
        client.health()


def test_the_client_does_not_wait_for_ever(tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    client = Client(tmp_path / "s", timeout=0.2)
    with pytest.raises(errors.InputOutputError, match=r"the worker gives no answer; expected within 0\.2 s"):
        client.health()
    client = Client(tmp_path / "s", timeout=0.2)
    with pytest.raises(errors.InputOutputError, match="the worker takes no request"):
        client.request("tokenize", text="a" * 10_000_000)
    listener.close()


def test_a_cancel_may_come_from_another_thread(begun, tmp_path):
    begun(before=HELD)
    with Client(tmp_path / "s") as client:
        tokens = client.generate(TEXT, max_tokens=450, temperature=2.0, seed=11)
        threading.Timer(0.02, client.cancel, [tokens.id]).start()
        assert tokens.rest()["finish_reason"] == "cancelled"
        assert client.health()["errors"] == 0
