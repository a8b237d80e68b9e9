"""JSON in and out: bodies of requests as objects, answers as UTF-8. Called by app and pages."""

import json

from ..constrain.jsontext import read
from ..errors import InvalidInputError

JSON = b"application/json"


def understood(data):
    """The object that a body holds."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("the body is not UTF-8", "UTF-8 text", f"byte {error.start} is not") from None
    value = read(text, "the body")
    if not isinstance(value, dict):
        raise InvalidInputError("the body is no object", "a JSON object", type(value).__name__)
    return value


def encoded(value):
    """JSON as UTF-8; where a text holds what is no Unicode, all but ASCII is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
