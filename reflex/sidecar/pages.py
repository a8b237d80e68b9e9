"""What can be read without a turn: health, models, counts, the document. Routes by Starlette.

Starlette is imported with the first page that is asked for, or a second after the start, but not before the first answer. Called
by app.
"""

import time

from ..client import raised
from . import metrics, problems
from .engine import stopping
from .json_text import JSON, encoded

VERSION = "1"  # of what is offered


class Pages:
    """An ASGI application. `paths`: those that there are."""

    def __init__(self, engine, name, counts, secured):
        self.engine, self.name, self._counts, self._secured = engine, name, counts, secured
        self._created = int(time.time())
        self._router = None
        self._found = {"/v1/models": self.models, "/v1/models/{id:path}": self.model, "/metrics": self.counts}
        self._found |= {"/openapi.json": self.document, "/healthz": self.health, "/ping": self.health}
        self.paths = set(self._found)

    def prepare(self):
        """Import what pages need."""
        if self._router is None:
            from starlette.routing import Route, Router

            routes = [Route(path, page, methods=["GET"]) for path, page in self._found.items()]
            self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope, receive, send):
        self.prepare()
        from starlette.exceptions import HTTPException

        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            if error.status_code == 405:
                raise problems.wrong_method(scope["method"], error.headers["Allow"]) from None
            raise problems.not_found(scope["path"]) from None

    async def health(self, request):
        """200 ready, 204 loading, 503 where there is no worker and none about to be."""
        state = self.engine.state
        if self.engine.ending:
            raise stopping()
        if state == "failed":
            raise raised(self.engine.error.as_dict())
        if state == "loading":
            return answer(b"", status_code=204)
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
            raise problems.not_found(request.scope["path"])
        return page(self._model())

    async def counts(self, request):
        """Counts for Prometheus."""
        return answer(self._counts.text(), media_type=metrics.TYPE)

    async def document(self, request):
        """What is offered, as OpenAPI 3.1."""
        from .openapi import document

        return page(document(VERSION, self._secured))


def page(value):
    """A 200 with JSON."""
    return answer(encoded(value), media_type=JSON.decode())


def answer(*arguments, **named):
    """Starlette's Response."""
    from starlette.responses import Response

    return Response(*arguments, **named)
