"""AWS Lambda on the CPU: an event is a request of docs/worker.md, or an HTTP request (function URL, API gateway) with one as body.

Lambda imports `ready`, which loads the model before the first call, while the environment is made. Environment: REFLEX_MODEL,
REFLEX_OPTIONS. Run by awslambdaric, see Dockerfile.
"""

import base64
import json

from reflex.errors import InvalidInputError, ReflexError
from reflex.integrations.held import Held, status

PARTING = 0.5  # seconds of Lambda's limit that are left for the answer to go out

held = Held()


def handler(event, context):
    """The answer to a direct call, or {statusCode, headers, body} to one over HTTP."""
    if not (isinstance(event, dict) and "requestContext" in event):
        return held(event, seconds(context))
    try:
        answer = held(body_of(event), seconds(context))
    except ReflexError as error:
        answer = {"error": error.as_dict()}
    return {"statusCode": status(answer), "headers": {"content-type": "application/json"}, "body": json.dumps(answer)}


def seconds(context):
    """How long the worker may take: what is left of this call."""
    return max(PARTING, context.get_remaining_time_in_millis() / 1000 - PARTING)


def body_of(event):
    """The request in an HTTP event."""
    text = event.get("body") or ""
    try:
        return json.loads(base64.b64decode(text, validate=True) if event.get("isBase64Encoded") else text)
    except (ValueError, RecursionError) as error:
        expected = "a JSON object, see docs/worker.md"
        raise InvalidInputError("the body is no request", expected, str(error), remedy="send JSON") from None
