"""Connections, by uvicorn with h11: when each has to send and to read, how many there may be, what is said of broken ones; the end.

Called by main with an application.
"""

import asyncio
import contextlib
import json
import logging
import resource
import signal

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import Server

from ..errors import InvalidInputError
from .problems import Problem

MOST_CONNECTIONS = 1000
SPARE = 64  # file descriptors for other than connections
LONGEST_HEAD = 1 << 16  # bytes
IDLE = 30  # seconds that a connection stays open without a request
LAST_WORDS = 2  # seconds to write errors at the end
CODES = {int(signal.SIGTERM): 0, int(signal.SIGINT): 130}  # exit codes of the process


class Protocol(H11Protocol):
    """A connection. `READ` and `STALL`, set by `serve`: seconds for a head to arrive, and for an answer to be read; `MOST`:
    connections that there may be."""

    READ = STALL = 30.0
    MOST = MOST_CONNECTIONS

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._head_timer = self._stall_timer = None

    def connection_made(self, transport):
        super().connection_made(transport)
        if len(self.connections) > self.MOST:
            transport.abort()
        else:
            self._watch_head()

    def data_received(self, data):
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self):
        super().on_response_complete()
        self._watch_head()

    def connection_lost(self, exc):
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._head_timer, self._stall_timer):
            if timer:
                timer.cancel()

    def _watch_head(self):
        """A clock runs while a head, or the rest of a body that nobody wants, is to come; it is not set back by parts of it."""
        answered = self.cycle is None or self.cycle.response_complete
        begun = self.cycle is None or self.conn.their_state is not h11.IDLE or bool(self.conn.trailing_data[0])
        if not (answered and begun):
            if self._head_timer:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.READ, self.transport.abort)

    def pause_writing(self):
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self.STALL, self.transport.abort)

    def resume_writing(self):
        super().resume_writing()
        if self._stall_timer:
            self._stall_timer.cancel()
            self._stall_timer = None

    def send_400_response(self, msg):
        """What is no HTTP."""
        if self.cycle and not self.cycle.response_complete:  # within a request: its answer cannot be given any more
            self.transport.abort()
            return
        body = Problem(InvalidInputError("this is no HTTP request", "HTTP/1.1", "something else")).body
        data = json.dumps(body).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(data))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=data), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class Quiet(Server):
    """A Server that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self):
        yield


class Service:
    """uvicorn around an application, until a signal comes. `number`: the signal."""

    def __init__(self, app, engine, options):
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        Protocol.READ, Protocol.STALL = options.read_timeout, options.stall
        Protocol.MOST = max(1, min(MOST_CONNECTIONS, soft - SPARE))
        for name in ("uvicorn", "asyncio"):  # what clients do wrong is no warning of ours
            logging.getLogger(name).setLevel(logging.ERROR)
        self.engine, self.grace, self.number = engine, options.grace, 0
        bound = round(options.grace) + LAST_WORDS
        self.server = Quiet(
            Config(
                app,
                http=Protocol,
                ws=None,
                interface="asgi3",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=512,
                h11_max_incomplete_event_size=LONGEST_HEAD,
                timeout_keep_alive=IDLE,
                timeout_graceful_shutdown=bound,
            )
        )

    @property
    def code(self):
        """The exit code that the signal asks for."""
        return CODES.get(self.number, 0)

    async def run(self, listener):
        """Serve until a signal, or `stop`."""
        loop = asyncio.get_running_loop()
        for number in CODES:
            if signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self.stop, number)
        await self.server.serve(sockets=[listener])

    def stop(self, number):
        """Take nothing new; what is under way has its time, unless this is the second signal."""
        self.engine.end()
        self.server.should_exit = True
        asyncio.get_running_loop().call_later(0 if self.number else self.grace, self.engine.end_turns)
        self.number = self.number or number
