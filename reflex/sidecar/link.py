"""Lines to a worker and from it: requests under their numbers, answers to whoever asked, the end of the worker to all of them.

Reads whatever comes at once, so that the worker never waits for a client of ours; an answer is held until it is asked for, and has
at most as many lines as the context has tokens. Called by engine.
"""

import json
from collections import deque
from os import read, write

from ..client import raised
from ..errors import InputOutputError, StateError

PIECE = 1 << 16
STUCK = 30.0  # seconds after a cancel in which the worker must answer: a batch of a long prompt is not cut short


class Request:
    """One request that was sent. `next` gives its answers in order; `done` once the last one has come."""

    def __init__(self, link, number):
        self.number = number
        self.done = False
        self.watch = None  # what happens where a cancel is not answered
        self._link = link
        self._came = deque()
        self._waiter = None

    def put(self, said):
        """An answer has come."""
        self.done = said["type"] != "token"
        if self.done and self.watch:
            self.watch.cancel()
        self._came.append(said)
        self._wake()

    def give_up(self, error):
        """Whoever waits for the next answer gets this error; the worker does not know."""
        self._came.clear()
        self._came.append({"type": "error", **error.as_dict()})
        self._wake()

    def _wake(self):
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self):
        """The next answer: a token, or the result. An error answer is raised."""
        while not self._came:
            self._waiter = self._link.loop.create_future()
            await self._waiter
        said = self._came.popleft()
        if said["type"] == "error":
            raise raised(said)
        if said.get("finish_reason") == "cancelled":
            raise StateError("the worker was told to stop", "an answer", "a cancelled one", remedy="ask again")
        return said


class Link:
    """A worker process that is spoken to. `on_ready` is called with its first line, `on_done` with each request that has its last
    answer, `on_end` with the error that it ended with: the one it said, or that it is gone."""

    def __init__(self, process, loop, on_ready, on_done, on_end):
        self.process = process
        self.loop = loop
        self.on_ready, self.on_done, self.on_end = on_ready, on_done, on_end
        self._requests = {}
        self._numbers = 0
        self._part = b""  # of a line from the worker
        self._unsent = bytearray()
        self._said = None  # what it said of its end
        loop.add_reader(process.source, self._read)

    # ---- to it ----

    def ask(self, command, fields):
        """Send a request; returns it."""
        self._numbers += 1
        request = self._requests[self._numbers] = Request(self, self._numbers)
        self._send({"command": command, "id": self._numbers, **fields})
        return request

    def cancel(self, request):
        """Have a request end; its last answer will come all the same, or the worker is killed."""
        if not request.done:
            self._send({"command": "cancel", "id": f"cancel {request.number}", "target": request.number})
            request.watch = self.loop.call_later(STUCK, self.process.kill)

    def _send(self, said):
        waits = bool(self._unsent)
        self._unsent += json.dumps(said, separators=(",", ":")).encode() + b"\n"
        if not waits:
            self._write()

    def _write(self):
        """Write what the pipe takes; called again when it takes more."""
        if self.process.sink is None:
            return
        try:
            del self._unsent[: write(self.process.sink, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, which its other pipe will say
            self._unsent.clear()
        if self._unsent:
            self.loop.add_writer(self.process.sink, self._write)
        else:
            self.loop.remove_writer(self.process.sink)

    # ---- from it ----

    def _read(self):
        try:
            data = read(self.process.source, PIECE)
        except BlockingIOError:
            return
        if not data:
            self._end()
            return
        *lines, self._part = (self._part + data).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line):
        try:
            said = json.loads(line)
            kind, number = said["type"], said.get("id")
        except (ValueError, KeyError, TypeError, AttributeError):  # not a worker, or one of another kind
            self._said = {"category": "internal", "message": "the worker says what is no answer", "expected": "a JSON object"}
            self._said |= {"found": ascii(line[:80]), "where": None, "remedy": "see that --worker names reflex"}
            self.process.kill()
            return
        if kind == "ready":
            self.on_ready(said)
        elif kind == "error" and number is None:
            self._said = said
        elif number in self._requests:
            request = self._requests[number]
            request.put(said)
            if request.done:
                del self._requests[number]
                self.on_done(request)

    def _end(self):
        """It closed its stdout: it ends, or has ended."""
        self.loop.remove_reader(self.process.source)
        if self.process.sink is not None:
            self.loop.remove_writer(self.process.sink)
        self.process.close()
        self.loop.create_task(self._bury())

    async def _bury(self):
        from asyncio import sleep

        for wait in (0.0, 0.001, 0.01, 0.1, 1.0, 1.0):
            await sleep(wait)
            if self.process.ended():
                break
        else:
            self.process.kill()
            while not self.process.ended():
                await sleep(0.01)
        error = self._problem()
        for request in self._requests.values():
            request.put({"type": "error", **error.as_dict()})
        self._requests.clear()
        self.on_end(error)

    def _problem(self):
        if self._said:
            return raised(self._said)
        code = self.process.code
        found = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return InputOutputError("the worker is gone", "an answer", found, remedy="ask again: it is being started")
