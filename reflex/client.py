"""A client of a worker: connects to the socket of `reflex uds`, or starts a `reflex stdio` of its own.

    with Client("/run/reflex.sock") as worker:            # or Client(["reflex", "stdio", "model.gguf"])
        print(worker.system1("The capital of France is", [" Paris", " London"])["best_text"])
        for token in worker.generate("Once upon a time", max_tokens=40):
            print(token["text"], end="")

Answers are dictionaries as docs/worker.md describes them; an error answer is raised as the error of `reflex.errors` that it names.
Imports nothing of the engine. Every wait has an end. One request at a time; only `cancel` may come from another thread.
"""

import json
import os
import socket
import subprocess
import threading
import time
from select import POLLIN, POLLOUT, poll

from . import errors
from .errors import InputOutputError, StateError

PIECE = 1 << 16
PARTING = 5.0  # seconds for a worker of one's own to end by itself


class Client:
    """A connection. `where`: the path of a socket, or the words of a command that speaks over stdin and stdout.

    `timeout`: seconds to wait for each line of an answer. `wait`: seconds to wait for a worker that is just starting: until its
    socket is there, or its command has said `ready`, a line that is then at `ready`."""

    def __init__(self, where, timeout=60.0, wait=60.0):
        self.timeout = timeout
        self.ready = None
        self.process = self._socket = None
        self._numbers = 0
        self._owed = set()  # ids of cancels whose answers nobody asked for
        self._under_way = None  # id of the request whose last answer has not come
        self._lines, self._parts = [], []  # whole ones, and the pieces of the next
        self._sending = threading.Lock()
        try:
            if isinstance(where, (str, bytes, os.PathLike)):
                self._connect(os.fspath(where), time.monotonic() + wait)
            else:
                self._start([os.fspath(word) for word in where], wait)
        except BaseException:
            self.close()
            raise

    def _connect(self, path, until):
        while True:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._socket.connect(path)
                break
            except (FileNotFoundError, ConnectionRefusedError) as error:  # not there yet, or not any more
                self._socket.close()
                if time.monotonic() > until:
                    raise InputOutputError("no worker answers", found=error.strerror, where=path) from None
                time.sleep(0.02)
            except OSError as error:
                raise InputOutputError("no worker answers", found=error.strerror, where=path) from None
        self._socket.setblocking(False)
        self._source = self._sink = self._socket.fileno()

    def _start(self, words, wait):
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise InputOutputError("cannot start the worker", found=error.strerror, where=words[0]) from None
        self._source, self._sink = self.process.stdout.fileno(), self.process.stdin.fileno()
        os.set_blocking(self._source, False)
        os.set_blocking(self._sink, False)
        self.ready = self._answer(wait)

    # ---- requests ----

    def request(self, command, **fields):
        """Any request with one answer: its result. Fields that are None are left out."""
        return self._result(self._ask(command, fields))

    def system1(self, prompt=None, candidates=(), **fields):
        """Score candidates; see docs/worker.md for the fields of the request and of the result."""
        return self.request("system1", prompt=prompt, candidates=list(candidates), **fields)

    def generate(self, prompt=None, **fields):
        """Continue a prompt: Tokens, an iterator that has `result` in the end."""
        return Tokens(self, self._ask("generate", {"prompt": prompt, "stream": True, **fields}))

    def tokenize(self, text, **fields):
        """The token ids of a text."""
        return self.request("tokenize", text=text, **fields)["token_ids"]

    def detokenize(self, ids, **fields):
        """The text of token ids."""
        return self.request("detokenize", token_ids=list(ids), **fields)["text"]

    def health(self):
        """What the worker says of itself."""
        return self.request("health")

    def cancel(self, target=None):
        """Ask for the end of a request, by default of all that were sent; returns at once. The request ends with its answer."""
        with self._sending:
            number = self._number("cancel")
            self._owed.add(number)
            self._write({"command": "cancel", "id": number, **({} if target is None else {"target": target})})

    def close(self):
        """Leave. A request under way is cancelled; a worker of one's own ends."""
        if self._socket is not None:
            self._socket.close()
        if self.process is not None:
            self.process.stdin.close()
            if self._under_way:
                self.process.stdout.close()
            for end in (lambda: None, self.process.terminate, self.process.kill):
                end()
                if self._ended() is not None:
                    break
            self.process.stdout.close()
        self._source = self._sink = self._under_way = None

    def _ended(self):
        """The exit code of a worker of one's own, None where it does not end or is not one's own."""
        try:
            return self.process and self.process.wait(PARTING)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- lines ----

    def _number(self, what):
        self._numbers += 1
        return f"{what} {self._numbers}"

    def _ask(self, command, fields):
        if self._under_way is not None:
            remedy = "read it to its end, or cancel it"
            raise StateError("an answer is still under way", "one request at a time", "another one", remedy=remedy)
        with self._sending:
            number = self._number(command)
            said = {name: value for name, value in fields.items() if value is not None}
            self._write({"command": command, "id": number, **said})
        self._under_way = number
        return number

    def _write(self, said):
        data = memoryview(json.dumps(said).encode() + b"\n")
        until = time.monotonic() + self.timeout
        while data:
            self._wait("sink", POLLOUT, until, "the worker takes no request")
            try:
                data = data[os.write(self._sink, data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._lost(error.strerror) from None

    def _wait(self, end, event, until, what):
        descriptor = getattr(self, f"_{end}")
        if descriptor is None:
            raise StateError("the client was closed", remedy="make another one")
        asked = poll()
        asked.register(descriptor, event)
        if not asked.poll(max(0.0, until - time.monotonic()) * 1000):
            self.close()  # what comes later would be taken for the answer to something else
            raise InputOutputError(what, f"within {self.timeout:g} s", "nothing")

    def _lost(self, found):
        code = self._ended()
        self.close()
        return InputOutputError("the worker is gone", "an answer", found if code is None else f"exit code {code}")

    def _answer(self, timeout=None):
        """The next answer that somebody waits for, whatever it is; raises an error answer."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            while not self._lines:
                self._wait("source", POLLIN, until, "the worker gives no answer")
                self._receive()
            said = json.loads(self._lines.pop(0))
            if said.get("id") in self._owed:
                self._owed.discard(said["id"])
                continue
            if said["type"] != "token":
                self._under_way = None
            if said["type"] == "error":
                raise raised(said)
            return said

    def _receive(self):
        try:
            data = os.read(self._source, PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._lost(error.strerror) from None
        if not data:
            raise self._lost("the end of its answers")
        first, *more = data.split(b"\n")
        self._parts.append(first)
        for piece in more:
            self._lines.append(b"".join(self._parts))
            self._parts = [piece]

    def _result(self, number):
        said = self._answer()
        if said.get("id") != number:
            self.close()
            raise InputOutputError("an answer to something else", number, said.get("id"))
        return said


class Tokens:
    """The tokens of a generation as they come, dictionaries. `result`: the last answer, None while there is more."""

    def __init__(self, client, number):
        self.id = number
        self.result = None
        self._client = client

    def __iter__(self):
        return self

    def __next__(self):
        if self._client._under_way != self.id:
            raise StopIteration
        said = self._client._result(self.id)
        if said["type"] == "token":
            return said
        self.result = said
        raise StopIteration

    def rest(self):
        """Read to the end; the result."""
        for _ in self:
            pass
        return self.result

    def cancel(self):
        """End it within a token; the result, whose finish_reason is cancelled unless it had ended already."""
        if self._client._under_way == self.id:
            self._client.cancel(self.id)
        return self.rest()


def raised(said):
    """The error that an error answer names."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ReflexError)]
    known = {kind.category: kind for kind in kinds}
    kind = known.get(said["category"], errors.InternalError)
    return kind(*[said[name] for name in ("message", "expected", "found", "where", "remedy")])
