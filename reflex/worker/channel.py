"""One client: its lines in, answers out, within limits of time and memory.

Nothing here waits without an end: a client that does not read is given up after `stall` seconds, one that left is noticed at once,
a signal wakes every wait. A line that is too long is read to its end and thrown away piece by piece. Owns the lines that have come
and were not asked for yet; refuses to take in more than MOST_LINES of them or LONGEST_LINE bytes: the client then has to wait.
"""

from collections import deque
from posix import read as _read
from posix import write as _write
from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, poll
from time import monotonic, perf_counter_ns

from .protocol import LONGEST_LINE

PIECE = 1 << 16  # bytes read at once, and written in `stall` seconds
PIPE_PIECE = 4096  # bytes that a pipe with room takes without waiting
MOST_LINES = 1024
LAST_WORDS = 1.0  # seconds to write what is left after a signal
TOO_LONG = object()  # in place of such a line


class Gone(Exception):
    """The client is not there any more, or does not read."""


class Lines:
    """Cuts bytes into lines; whatever `most` bytes do not end is one TOO_LONG, up to its end."""

    __slots__ = ("_most", "_part", "_skips")

    def __init__(self, most=LONGEST_LINE):
        self._most = most
        self._part = bytearray()
        self._skips = False  # within a line that was too long

    def __len__(self):
        """Bytes held of a line without an end."""
        return len(self._part)

    def feed(self, data):
        """The lines that `data` completes: bytes without the line break, or TOO_LONG."""
        found, start = [], 0
        while start < len(data):
            end = data.find(b"\n", start)
            stop = len(data) if end < 0 else end
            if not self._skips:
                if len(self._part) + stop - start > self._most:
                    found.append(TOO_LONG)
                    self._skips = True
                    self._part = bytearray()
                else:
                    self._part += data[start:stop]
            if end >= 0:
                if not self._skips:
                    found.append(bytes(self._part))
                    self._part = bytearray()
                self._skips = False
            start = stop + 1
        return found

    def rest(self):
        """The line without an end, at the end of the input."""
        part, self._part = self._part, bytearray()
        return [bytes(part)] if part else []


class Arrived:
    """A line that has come."""

    __slots__ = ("at", "data", "hit", "request")

    def __init__(self, data):
        self.data = data  # bytes or TOO_LONG
        self.at = perf_counter_ns()
        self.request = None  # of a cancel that was understood when it came: its fields
        self.hit = False  # whether that ended something

    @property
    def size(self):
        return 0 if self.data is TOO_LONG else len(self.data)


class Channel:
    """A client at the descriptors `source` and `sink` (the same one for a socket, which must not block).

    `signals`: a Signals. `stall`: seconds that an answer may wait for its reader. `look`: called with each line that comes, and the
    lines before it that still wait. `gone`: the client left, or does not read."""

    def __init__(self, source, sink, signals, stall, look):
        self.source = source
        self.sink = sink
        self.signals = signals
        self.stall = stall
        self.look = look
        self.lines = Lines()
        self.arrived = deque()
        self.held = 0  # bytes of `arrived`
        self.open = True  # the source may still bring something
        self.gone = False

    # ---- in ----

    def next(self, idle=None, rival=None):
        """The next line; None at the end of the input, after a signal, or where the client has been silent for `idle` seconds and
        another waits at the descriptor `rival`. Raises Gone."""
        until = None if idle is None else monotonic() + idle
        while not self.arrived and self.open and not self.signals.number:
            left = None if until is None else until - monotonic()
            yielding = left is not None and left <= 0
            if rival in self._wait(None if yielding or left is None else left, rival=rival if yielding else None):
                return None
        if self.signals.number or not self.arrived:
            return None
        return self._take()

    def _take(self):
        line = self.arrived.popleft()
        self.held -= line.size
        return line

    def left(self):
        """The lines that came and were never asked for."""
        while self.arrived:
            yield self._take()

    def check(self):
        """Take in what has come, without waiting. `gone` and the signals' number tell the rest."""
        self._wait(0)

    def _wait(self, seconds, write=False, rival=None):
        """Wait until something can be done, and take in what came; the set of descriptors that are ready."""
        asked = poll()
        if not self.signals.number:  # it stays readable
            asked.register(self.signals.wake, POLLIN)
        take = self.open and len(self.arrived) < MOST_LINES and self.held + len(self.lines) <= LONGEST_LINE
        wanted = POLLOUT if write else 0
        if self.source == self.sink:
            wanted |= POLLIN if take else 0
        elif take:
            asked.register(self.source, POLLIN)
        asked.register(self.sink, wanted)
        if rival is not None:
            asked.register(rival, POLLIN)
        found = dict(asked.poll(None if seconds is None else max(0, seconds) * 1000))
        if found.get(self.sink, 0) & (POLLERR | POLLHUP | POLLNVAL):
            self.gone = True
            self.open = False
        elif take and found.get(self.source, 0) & ~POLLOUT:
            self._receive()
        return {descriptor for descriptor, event in found.items() if descriptor != self.sink or event & POLLOUT}

    def _receive(self):
        try:
            data = _read(self.source, PIECE)
        except BlockingIOError:
            return
        except OSError:  # a connection that was reset, or no stdin
            data, self.gone = b"", self.source == self.sink
        for line in self.lines.feed(data) if data else self.lines.rest():
            if line is TOO_LONG or line.strip():
                arrived = Arrived(line)
                self.look(arrived, self.arrived)
                self.arrived.append(arrived)
                self.held += arrived.size
        if not data:
            self.open = False

    # ---- out ----

    def send(self, data):
        """Write all of `data`, each PIECE of it within `stall` seconds; raises Gone where that cannot be."""
        for at in range(0, len(data), PIECE):
            self._send(memoryview(data)[at : at + PIECE])

    def _send(self, view):
        until = monotonic() + self.stall
        while view:
            if self.signals.number:
                until = min(until, monotonic() + LAST_WORDS)
            ready = self._wait(until - monotonic(), write=True)
            if self.gone:
                raise Gone("closed")
            if self.sink in ready:
                view = view[self._write(view) :]
            elif monotonic() >= until:
                self.gone = True
                raise Gone("stalled")

    def _write(self, view):
        try:
            return _write(self.sink, view if self.source == self.sink else view[:PIPE_PIECE])
        except BlockingIOError:
            return 0
        except OSError as error:
            self.gone = True
            raise Gone(error.strerror) from None


def await_client(socket, signals):
    """Wait until somebody connects; False where a signal comes first."""
    asked = poll()
    asked.register(signals.wake, POLLIN)
    asked.register(socket, POLLIN)
    while not signals.number:
        if socket.fileno() in dict(asked.poll()):
            return True
    return False
