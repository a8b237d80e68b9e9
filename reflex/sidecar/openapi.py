"""What the sidecar offers, as an OpenAPI 3.1 document, made of the schemas that requests are judged by. Called by app."""

from . import answers, requests
from .shape import REFERENCE

TITLE = "Reflex sidecar"
ABOUT = "Decisions and text from one language model, over HTTP. One request at a time; others wait."
PROBLEMS = {  # status -> when
    400: "The request is wrong, or asks for something that there is not.",
    401: "The token is missing or wrong.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    429: "Too many requests wait; Retry-After says for how long.",
    500: "A mistake of the engine.",
    503: "No worker can answer; Retry-After says when another one is tried.",
    504: "The request took too long, and was cancelled.",
}
TURN = (400, 408, 413, 415, 429, 500, 503, 504)  # what goes wrong where a turn is taken
POSTS = {  # path -> (name, what it does, schema of the body, of the answer, whether it can stream)
    "/v1/chat/completions": ("chat", "The next message of a conversation", "ChatRequest", "ChatAnswer", True),
    "/v1/completions": ("complete", "The continuation of a text", "CompletionRequest", "CompletionAnswer", True),
    "/v1/classify": ("classify", "Which of several labels, and how likely each is", "ClassifyRequest", "ClassifyAnswer", False),
    "/v1/systemone": ("systemone", "Typed questions about a state", "SystemOneRequest", "SystemOneAnswer", False),
}
LOADING = {"description": "The model is being loaded."}


def document(version, secured):
    """The document, for a sidecar that asks for a token or does not."""
    paths = {path: {"post": _post(*row, secured)} for path, row in POSTS.items()}
    paths["/v1/models"] = {"get": _get("models", "The one model", _json("Models"), secured)}
    named = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    paths["/v1/models/{id}"] = {
        "get": {**_get("model", "The model of this id", _json("Model"), secured, 404), "parameters": [named]}
    }
    text = {"text/plain": {"schema": {"type": "string"}}}
    paths["/metrics"] = {"get": _get("metrics", "Counts for Prometheus", {"description": "Counts", "content": text}, secured)}
    page = {"description": "This document", "content": {"application/json": {"schema": {"type": "object"}}}}
    paths["/openapi.json"] = {"get": _get("openapi", "This document", page, secured)}
    for path in ("/healthz", "/ping"):
        paths[path] = {"get": _get(path[1:], "Whether the worker is there", _json("Health"), False, 503)}
        paths[path]["get"]["responses"]["204"] = LOADING
    schemes = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}} if secured else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version, "description": ABOUT},
        "paths": paths,
        "components": {"schemas": {**requests.SCHEMAS, **answers.SCHEMAS}, **schemes},
    }


def _json(schema):
    return {"description": schema, "content": {"application/json": {"schema": {"$ref": REFERENCE + schema}}}}


def _problems(statuses, secured):
    wanted = (*statuses, *((401,) if secured else ()))
    return {str(status): {**_json("Error"), "description": PROBLEMS[status]} for status in sorted(wanted)}


def _get(name, summary, answer, secured, *statuses):
    found = {"operationId": name, "summary": summary, "responses": {"200": answer, **_problems(statuses, secured)}}
    return {**found, "security": [{"token": []}]} if secured else found


def _post(name, summary, body, answer, streams, secured):
    found = _get(name, summary, _json(answer), secured, *TURN)
    if streams:
        found["responses"]["200"] = {**_json(answer), "content": {**_json(answer)["content"], "text/event-stream": {}}}
    content = {"application/json": {"schema": {"$ref": REFERENCE + body}}}
    return {**found, "requestBody": {"required": True, "content": content}}
