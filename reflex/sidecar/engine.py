"""Who waits for the worker, and its lives: one request at a time, in order; a dead worker is started again, with growing pauses.

`state` is "loading" (requests wait), "ready" or "failed" (the last start went wrong, there is a pause before the next one: requests
are refused). Called by main and app.
"""

from collections import deque

from ..client import raised
from ..errors import ReflexError, StateError
from .link import Link
from .process import Process

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds before a start after one that failed; each doubles the one before
SETTLED = 10.0  # seconds that a worker must have been ready, for its end not to count as a failed start


class Full(Exception):
    """As many requests wait as may."""


class Turn:
    """A place in the queue. Waits, then asks the worker any number of requests one after the other."""

    def __init__(self, engine):
        self._engine = engine
        self.begins = engine.loop.create_future()
        self.request = None  # the one under way

    async def __aenter__(self):
        try:
            await self.begins
        except BaseException:
            self._engine.leave(self)
            raise
        return self

    async def __aexit__(self, *_):
        self._engine.leave(self)

    def ask(self, command, fields):
        """Send a request; returns it."""
        self.request = self._engine.link.ask(command, fields)
        return self.request

    @property
    def chats(self):
        """Whether the worker's model has a chat template."""
        return self._engine.ready["chat"]

    async def result(self, command, fields):
        """The result of a request that has no tokens."""
        return await self.ask(command, fields).next()

    def fail(self, error):
        """End it with an error, wherever it is."""
        if not self.begins.done():
            self.begins.set_exception(error)
        elif self.request and not self.request.done:
            self.request.give_up(error)


class Engine:
    """A worker that is kept running by the command `words`. `process`: the first one, which was started already. `limit`: turns
    that may wait. `on_change`: called with the state and the line `ready` or the error behind it."""

    def __init__(self, words, process, limit, loop, on_change):
        self.words, self.limit, self.loop, self.on_change = words, limit, loop, on_change
        self.state = "loading"
        self.ready = None  # what the worker said of itself
        self.error = None  # why it failed
        self.ending = False
        self.starts = 0
        self.current = None  # the turn at hand
        self.waiting = deque()
        self._failures = 0
        self._since = 0.0  # when it was ready
        self._leaving = None  # the request of a turn that was left, before its last answer
        self._start(process)

    # ---- turns ----

    def turn(self):
        """A Turn at the end of the queue. Full where that is too long, a ReflexError where no worker can be had."""
        if self.ending:
            raise stopping()
        if self.state == "failed":
            raise raised(self.error.as_dict())
        if len(self.waiting) + self.busy > self.limit:
            raise Full
        turn = Turn(self)
        self.waiting.append(turn)
        self._advance()
        return turn

    @property
    def busy(self):
        """Whether the worker has something to do."""
        return self.current is not None or self._leaving is not None

    def leave(self, turn):
        """A turn is over, or its client has left."""
        if turn is not self.current:
            if turn in self.waiting:
                self.waiting.remove(turn)
            return
        self.current = None
        if turn.request and not turn.request.done:
            self._leaving = turn.request
            self.link.cancel(turn.request)
        self._advance()

    def _advance(self):
        while self.waiting and self.state == "ready" and not self.busy:
            turn = self.waiting.popleft()
            if not turn.begins.done():
                self.current = turn
                turn.begins.set_result(None)

    def _done(self, request):
        if request is self._leaving:
            self._leaving = None
        self._failures = 0
        self._advance()

    # ---- lives ----

    def _start(self, process=None):
        self.starts += 1
        self.link = Link(process or Process(self.words), self.loop, self._is_ready, self._done, self._ended)

    def _is_ready(self, said):
        self.ready = said
        self._since = self.loop.time()
        self._change("ready", said)
        self._advance()

    def _ended(self, error):
        self.current = self._leaving = None
        if self.ending:
            self._refuse(error)
            return
        lived = self.state == "ready" and (self._failures == 0 or self.loop.time() - self._since > SETTLED)
        self._failures = 1 if lived else self._failures + 1
        if lived:  # whoever waits may go on waiting
            self._change("loading", error)
            self._again()
            return
        self.error = error
        self._change("failed", error)
        self._refuse(error)
        self.loop.call_later(self.pause(), self._again)

    def _refuse(self, error):
        while self.waiting:
            self.waiting.popleft().fail(error)

    def pause(self):
        """Seconds until the next start."""
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1))

    def _again(self):
        if self.ending:
            return
        try:
            self._start()
        except ReflexError as error:
            self._failures += 1
            self.error = error
            self._change("failed", error)
            self.loop.call_later(self.pause(), self._again)

    def _change(self, state, why):
        self.state = state
        self.on_change(state, why)

    # ---- the end ----

    def end(self):
        """Take no more turns; those there are go on."""
        self.ending = True

    def end_turns(self):
        """End the turns there are."""
        self._refuse(stopping())
        if self.current:
            self.current.fail(stopping())


def stopping():
    """The error for whoever asks a sidecar that ends."""
    return StateError("the sidecar is ending", "a running one", "a signal to stop", remedy="ask again later")
