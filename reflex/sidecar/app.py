"""The ASGI application: the token, bodies and clocks, and the one way in which requests are carried out and errors told.

Called by server for each request. What takes a turn is done here, all else by pages.
"""

import asyncio
import time

from . import problems
from .decisions import Classify, SystemOne
from .engine import Full
from .json_text import JSON, encoded, understood
from .metrics import Metrics
from .openai import Chat, Completion
from .pages import Pages
from .requests import SCHEMAS
from .shape import Shape

OPEN = ("/healthz", "/ping")  # no token is asked for there
EVENTS, PLAIN = b"text/event-stream", b"identity"
REFUSAL = 0.05  # seconds before a 429, so that clients which ask again at once leave the processor to the worker
DRAINED = 4  # times --max-body: what is read of a body that is too large, so that its sender hears why
ENDPOINTS = {  # path -> (schema of the body, what carries it out)
    "/v1/chat/completions": ("ChatRequest", Chat),
    "/v1/completions": ("CompletionRequest", Completion),
    "/v1/classify": ("ClassifyRequest", Classify),
    "/v1/systemone": ("SystemOneRequest", SystemOne),
}


class Left(Exception):
    """The client is not there any more."""


class Exchange:
    """A request and its answer. `status`: 0 until the answer begins."""

    def __init__(self, scope, receive, send):
        self.scope, self.receive, self._send = scope, receive, send
        self.status = 0
        self.headers = dict(scope["headers"])

    async def send(self, message):
        """What ASGI's send does."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def begin(self, status, kind, headers=()):
        """The head of the answer."""
        await self.send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *headers]})

    async def json(self, status, body, headers=()):
        """The whole answer."""
        data = encoded(body)
        await self.begin(status, JSON, [(b"content-length", b"%d" % len(data)), *headers])
        await self.send({"type": "http.response.body", "body": data})

    async def event(self, said):
        """An event of a stream, which the first one begins."""
        if not self.status:
            await self.begin(200, EVENTS, [(b"cache-control", b"no-store")])
        data = said if isinstance(said, bytes) else encoded(said)
        await self.send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True})

    async def end(self):
        """The end of a stream."""
        await self.send({"type": "http.response.body", "body": b""})

    async def body(self, most, seconds):
        """All bytes of the body; a Problem where that are too many, or they do not come."""
        parts, size, told = [], 0, int(self.headers.get(b"content-length", b"0"))
        if told > most and b"expect" in self.headers:
            raise problems.too_large(most)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise Left
                    size += len(message["body"])
                    if max(size, told) <= most:
                        parts.append(message["body"])
                    if not message["more_body"] or size > DRAINED * most:
                        break
        except TimeoutError:
            raise problems.too_large(most) if told > most else problems.too_slow(seconds) from None
        if max(size, told) > most:
            raise problems.too_large(most)
        return b"".join(parts)

    async def left(self):
        """Returns when the client has left."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


class App:
    """The application over an Engine. `options`: those of the command line; `name`: the model's id."""

    def __init__(self, engine, options, name, token):
        self.engine, self.options, self.name = engine, options, name
        self._token = token and token.encode()
        self._shape = Shape(SCHEMAS)
        self._seconds = 1.0  # that a turn takes, running mean
        self.metrics = Metrics(engine)
        self.pages = Pages(engine, name, self.metrics, bool(token))

    async def __call__(self, scope, receive, send):
        begun, exchange = time.perf_counter(), Exchange(scope, receive, send)
        path = scope["path"]
        try:
            self._admit(exchange)
            if path not in ENDPOINTS:
                await self.pages(scope, receive, exchange.send)
            elif scope["method"] != "POST":
                raise problems.wrong_method(scope["method"], "POST")
            else:
                await self._carry_out(exchange, *ENDPOINTS[path])
        except Left:
            self.metrics.cancelled["left"] += 1
        except Exception as error:
            await self._tell(exchange, problems.problem(error, max(1, round(self.engine.pause()))))
        known = path in ENDPOINTS or path in self.pages.paths
        self.metrics.answered(path if known else "other", exchange.status, time.perf_counter() - begun)

    def _admit(self, exchange):
        """Ask for the token; compared in a time that does not depend on where it differs."""
        if self._token and exchange.scope["path"] not in OPEN:
            from hmac import compare_digest

            scheme, _, told = exchange.headers.get(b"authorization", b"").partition(b" ")
            if not compare_digest(told.strip(), self._token) or scheme.lower() != b"bearer":
                raise problems.unauthorized()

    async def _tell(self, exchange, problem):
        """Answer with an error; in a stream that has begun, as its last event."""
        if not exchange.status:
            await exchange.json(problem.status, problem.body, problem.headers)
        else:
            await exchange.event(problem.body)
            await exchange.end()

    # ---- what takes a turn ----

    async def _carry_out(self, exchange, schema, form):
        kind = exchange.headers.get(b"content-type", b"")
        if kind.partition(b";")[0].strip().lower() != JSON:
            raise problems.no_json(kind)
        if exchange.headers.get(b"content-encoding", PLAIN).lower() != PLAIN:
            raise problems.coded(exchange.headers[b"content-encoding"])
        data = await exchange.body(self.options.max_body, self.options.read_timeout)
        body = understood(data)
        self._shape.judge(body, schema)
        work = self._answer(exchange, form(body, self.name))
        try:
            await attended(work, exchange, self.options.timeout)
        except TimeoutError:
            self.metrics.cancelled["late"] += 1
            raise problems.late(self.options.timeout) from None
        except Full:
            pause = max(1, round(self._seconds * (self.engine.limit + 1)))
            await asyncio.sleep(REFUSAL)
            raise problems.full(self.engine.limit, min(pause, 60)) from None

    async def _answer(self, exchange, form):
        async with self.engine.turn() as turn:
            begun = time.perf_counter()
            if hasattr(form, "answer"):
                said, read = await form.answer(turn)
                self.metrics.tokens["prompt"] += read
                await exchange.json(200, said)
            else:
                await self._generate(exchange, form, turn)
            self._seconds += (time.perf_counter() - begun - self._seconds) / 8

    async def _generate(self, exchange, form, turn):
        request, tokens = turn.ask("generate", {**form.fields, "stream": form.by_token}), []
        said = await request.next()  # the first one, so that an error is an answer with a status of its own
        if form.streams:
            for chunk in form.opening():
                await exchange.event(chunk)
        while said["type"] == "token":
            if form.streams and (chunk := form.piece(said)):
                await exchange.event(chunk)
            elif not form.streams:
                tokens.append(said)
            said = await request.next()
        self.metrics.tokens["prompt"] += said["prompt_tokens"]
        self.metrics.tokens["completion"] += said["completion_tokens"]
        if not form.streams:
            await exchange.json(200, form.whole(tokens, said))
            return
        for chunk in form.closing(said):
            await exchange.event(chunk)
        await exchange.event(b"[DONE]")
        await exchange.end()


async def attended(work, exchange, seconds):
    """Do `work`, but no longer than the client is there (Left) and `seconds` last (TimeoutError)."""
    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(exchange.left())
    try:
        await asyncio.wait((task, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Left if leaving.done() else TimeoutError
        task.result()
    finally:
        leaving.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
