"""Errors as HTTP answers: OpenAI's shape, with the category of our own tree in it. One table says which status goes with what.

Called by app and everything below it.
"""

from ..errors import InternalError, InvalidInputError, ReflexError, StateError

STATUS = {  # category -> HTTP status
    "invalid_input": 400,
    "context_overflow": 400,
    "unsupported": 400,
    "adapter": 400,
    "tokenizer": 500,
    "internal": 500,
    "model_file": 503,
    "kernel_cache": 503,
    "device": 503,
    "out_of_memory": 503,
    "state": 503,
    "io": 503,
}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    408: "timeout_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
CODES = {"context_overflow": "context_length_exceeded", "unsupported": "unsupported_value"}  # what OpenAI calls it


class Problem(Exception):
    """An error that is an answer: `status`, `headers` [(name, value)], and its JSON `body`."""

    def __init__(self, error, status=None, code=None, headers=()):
        super().__init__(str(error))
        self.status = STATUS[error.category] if status is None else status
        self.headers = list(headers)
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        parts = error.as_dict()
        own = {name: value if value is None else str(value)[:LONGEST] for name, value in parts.items() if name != "message"}
        said = {"message": str(error), "type": kind, "param": own["where"] if self.status == 400 else None}
        self.body = {"error": {**said, "code": code or CODES.get(error.category, error.category), **own}}


LONGEST = 600  # characters of a part


def problem(error, pause=1):
    """The Problem for whatever was raised. `pause`: seconds after which asking again may help."""
    if isinstance(error, Problem):
        return error
    if not isinstance(error, ReflexError):
        error = InternalError(f"{type(error).__name__}: {error}", remedy="report it")
    found = Problem(error)
    if found.status == 503:
        found.headers.append((b"retry-after", b"%d" % pause))
    return found


def unauthorized():
    error = InvalidInputError("the request has no right token", "Authorization: Bearer and the token", "none, or another one")
    return Problem(error, 401, "invalid_api_key", [(b"www-authenticate", b"Bearer")])


def not_found(path):
    return Problem(
        InvalidInputError("there is nothing at this path", "a path of /openapi.json", ascii(path[:100])), 404, "not_found"
    )


def wrong_method(method, allowed):
    headers = [(b"allow", allowed.encode())]
    return Problem(
        InvalidInputError("the path has no such method", allowed, ascii(method[:20])), 405, "method_not_allowed", headers
    )


def no_json(found):
    found = found.decode("latin-1")
    error = InvalidInputError("the body has another type", "Content-Type: application/json", ascii(found[:60]) if found else "none")
    return Problem(error, 415, "unsupported_media_type")


def coded(found):
    error = InvalidInputError("the body is encoded", "no Content-Encoding", ascii(found.decode("latin-1")[:60]))
    return Problem(error, 415, "unsupported_media_type")


def too_large(most):
    error = InvalidInputError("the body is too large", f"at most {most} bytes", "more", remedy="send less, or raise --max-body")
    return Problem(error, 413, "body_too_large", CLOSE)


def too_slow(seconds):
    error = InvalidInputError("the body did not come", f"all of it within {seconds:g} s", "a part of it")
    return Problem(error, 408, "body_timeout", CLOSE)


def full(limit, pause):
    error = StateError(
        "too many requests wait", f"at most {limit} and the one at hand", "another one", remedy=f"ask again in {pause} s"
    )
    return Problem(error, 429, "queue_full", [(b"retry-after", b"%d" % pause)])


def late(seconds):
    error = StateError("the request took too long", f"at most {seconds:g} s", "more", remedy="ask for less, or raise --timeout")
    return Problem(error, 504, "request_timeout")


CLOSE = [(b"connection", b"close")]
