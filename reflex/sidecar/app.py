"""The ASGI application: routes, the token, bodies and clocks, and the one way in which requests are carried out and errors told.

Called by server for each request; routes by Starlette.
"""

import asyncio
import json
import time

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route, Router

from ..client import raised
from ..constrain.jsontext import read as read_json
from ..errors import InvalidInputError
from . import metrics, problems
from .decisions import Classify, SystemOne
from .engine import Full, stopping
from .openai import Chat, Completion
from .requests import SCHEMAS
from .shape import Shape

VERSION = "1"  # of what is offered here
OPEN = ("/healthz", "/ping")  # no token is asked for there
JSON, EVENTS, PLAIN = b"application/json", b"text/event-stream", b"identity"
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
        self._created = int(time.time())
        self._seconds = 1.0  # that a turn takes, running mean
        self.metrics = metrics.Metrics(self.gauges)
        pages = {"/v1/models": self.models, "/v1/models/{id:path}": self.model, "/metrics": self.counts}
        pages |= {"/openapi.json": self.document, "/healthz": self.health, "/ping": self.health}
        routes = [Route(path, page, methods=["GET"]) for path, page in pages.items()]
        for path, (schema, form) in ENDPOINTS.items():
            routes.append(Route(path, self._endpoint(schema, form), methods=["POST"]))
        self._router = Router(routes, redirect_slashes=False)
        self._paths = {*pages, *ENDPOINTS}

    async def __call__(self, scope, receive, send):
        begun, exchange = time.perf_counter(), Exchange(scope, receive, send)
        scope["app"], scope["exchange"] = self, exchange
        try:
            self._admit(exchange)
            await self._router(scope, receive, exchange.send)
        except Left:
            self.metrics.cancelled["left"] += 1
        except HTTPException as error:
            await self._tell(exchange, self._unrouted(scope, error))
        except Exception as error:
            await self._tell(exchange, problems.problem(error, max(1, round(self.engine.pause()))))
        path = scope["path"] if scope["path"] in self._paths else "other"
        self.metrics.answered(path, exchange.status, time.perf_counter() - begun)

    def _admit(self, exchange):
        """Ask for the token; compared in a time that does not depend on where it differs."""
        if self._token and exchange.scope["path"] not in OPEN:
            from hmac import compare_digest

            scheme, _, told = exchange.headers.get(b"authorization", b"").partition(b" ")
            if not compare_digest(told.strip(), self._token) or scheme.lower() != b"bearer":
                raise problems.unauthorized()

    def _unrouted(self, scope, error):
        if error.status_code == 405:
            return problems.wrong_method(scope["method"], error.headers["Allow"])
        return problems.not_found(scope["path"])

    async def _tell(self, exchange, problem):
        """Answer with an error; in a stream that has begun, as its last event."""
        if not exchange.status:
            await exchange.json(problem.status, problem.body, problem.headers)
        else:
            await exchange.event(problem.body)
            await exchange.end()

    # ---- what takes a turn ----

    def _endpoint(self, schema, form):
        class Endpoint:  # what Starlette takes for an ASGI application, not for a function of a request
            async def __call__(_, scope, receive, send):
                await self._carry_out(scope["exchange"], schema, form)

        return Endpoint()

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

    # ---- pages ----

    async def health(self, request):
        """200 ready, 204 loading, 503 where there is no worker and none about to be."""
        state = self.engine.state
        if self.engine.ending:
            raise stopping()
        if state == "failed":
            raise raised(self.engine.error.as_dict())
        if state == "loading":
            return Response(status_code=204)
        return page({"status": "ok", "model": self.name, **self._facts()})

    def _facts(self):
        ready = self.engine.ready or {}
        return {"context_length": ready.get("context"), "backend": ready.get("backend")}

    def _model(self):
        return {"id": self.name, "object": "model", "created": self._created, "owned_by": "reflex", **self._facts()}

    async def models(self, request):
        """The one model."""
        return page({"object": "list", "data": [self._model()]})

    async def model(self, request):
        """The same by its id."""
        if request.path_params["id"] != self.name:
            raise problems.not_found(request.url.path)
        return page(self._model())

    async def counts(self, request):
        """Counts for Prometheus."""
        return Response(self.metrics.text(), media_type=metrics.TYPE.decode())

    async def document(self, request):
        """What this program offers, as OpenAPI 3.1."""
        from .openapi import document

        return page(document(VERSION, bool(self._token)))

    def gauges(self):
        """{(name, kind, help): value} for the metrics."""
        engine = self.engine
        return {
            ("worker_ready", "gauge", "1 where the worker answers."): int(engine.state == "ready"),
            ("worker_starts_total", "counter", "Workers that were started."): engine.starts,
            ("requests_running", "gauge", "Requests that the worker is at."): int(engine.busy),
            ("requests_waiting", "gauge", "Requests that wait for it."): len(engine.waiting),
            ("queue_limit", "gauge", "Requests that may wait."): engine.limit,
        }


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


def understood(data):
    """The object that a body holds."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("the body is not UTF-8", "UTF-8 text", f"byte {error.start} is not") from None
    value = read_json(text, "the body")
    if not isinstance(value, dict):
        raise InvalidInputError("the body is no object", "a JSON object", type(value).__name__)
    return value


def encoded(value):
    """JSON as UTF-8; where a text holds what is no Unicode, all but ASCII is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def page(value):
    """A 200 with JSON."""
    return Response(encoded(value), media_type=JSON.decode())
