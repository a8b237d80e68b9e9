"""A worker that outlives the calls of a platform: started once, asked by each call, started again when it is gone.

What handlers of platforms share: they turn an event into a request of docs/worker.md, and what comes back into their platform's
answer. An error is an answer too: {"error": {category, message, expected, found, where, remedy}}. Nothing of the engine is
imported.
"""

import os
import shlex
import shutil
import sys
import threading

from .. import settings
from ..client import Client
from ..errors import InputOutputError, InvalidInputError, ReflexError

COMMANDS = ("system1", "generate", "tokenize", "detokenize", "health")
GONE = "the worker is gone"  # of reflex.client: whatever it was asked can be asked again
CALLERS = ("invalid_input", "context_overflow", "unsupported", "tokenizer")  # categories that are the request's fault


def program():
    """The path of `reflex`: beside this Python, else on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "reflex")
    found = beside if os.access(beside, os.X_OK) else shutil.which("reflex")
    if found is None:
        remedy = "pip install reflex-gguf"
        raise InputOutputError("there is no program reflex", "beside Python or on the PATH", "none", remedy=remedy)
    return found


class Held:
    """`words`: a command that answers over stdin and stdout, by default `reflex stdio` on the model and with the options of the
    environment (REFLEX_MODEL, REFLEX_OPTIONS). `timeout`: seconds for each line of an answer. `wait`: for the model to load."""

    def __init__(self, words=None, timeout=300.0, wait=300.0):
        self.words, self.timeout, self.wait = words, timeout, wait
        self.starts = 0
        self._client = None
        self._turn = threading.Lock()  # one request at a time, whatever threads a platform has

    def start(self):
        """Start the worker and wait until its model is loaded, if there is none; what it said then."""
        with self._turn:
            return self._started().ready

    def _started(self):
        if self._client is None:
            if self.words is None:
                asked = words_of(*settings.held_worker())
                self.words = [program(), "stdio", *asked]
            self._client = Client(self.words, self.timeout, self.wait)
            self.starts += 1
        return self._client

    def stream(self, request, timeout=None):
        """Yield the answers to a request, dictionaries: tokens where it has `stream`, and one result or error as the last. A
        request whose worker dies before the first answer is tried again with another one, once. `timeout`: for this request."""
        with self._turn:
            try:
                for chance in (True, False):
                    try:
                        yield from self._asked(checked(request), timeout)
                        return
                    except InputOutputError as error:
                        if not chance or self.begun or error.message != GONE:
                            raise
            except ReflexError as error:
                yield {"error": error.as_dict()}

    def _asked(self, request, timeout):
        self.begun = False
        client = self._started()
        client.timeout = timeout or self.timeout
        whole = False
        try:
            fields = {name: value for name, value in request.items() if name not in ("command", "id")}
            if request["command"] == "generate" and request.get("stream"):
                tokens = client.generate(**fields)
                for token in tokens:
                    self.begun = True
                    yield token
                yield tokens.result
            else:
                yield client.request(request["command"], **fields)
            whole = True
        except ReflexError as error:
            whole = not isinstance(error, InputOutputError)  # an answer of the worker's
            raise
        finally:
            if not whole:  # it is gone, or owes an answer
                self._client = None
                client.close()

    def __call__(self, request, timeout=None):
        """The answer to a request: a result, or {"error": ...}."""
        asked = {**request, "stream": None} if isinstance(request, dict) else request
        (answer,) = self.stream(asked, timeout)
        return answer

    def close(self):
        """End the worker."""
        with self._turn:
            if self._client is not None:
                self._client.close()
                self._client = None


def checked(request):
    """A request that a handler may pass on: the worker judges the rest."""
    if not isinstance(request, dict) or request.get("command") not in COMMANDS:
        found = repr(request.get("command"))[:80] if isinstance(request, dict) else f"a {type(request).__name__}"
        remedy = 'such as {"command": "system1", "prompt": "...", "candidates": ["...", "..."]}'
        expected = f"an object whose command is one of {', '.join(COMMANDS)}"
        raise InvalidInputError("this is no request", expected, found, remedy=remedy)
    return request


def status(answer):
    """The HTTP status of an answer: 200; 400 for what is the request's fault, else 500."""
    if "error" not in answer:
        return 200
    return 400 if answer["error"]["category"] in CALLERS else 500


def words_of(model, options):
    """The model and its options as words, the options as a shell would split them."""
    if not model:
        raise InvalidInputError("no model is named", "the path of a .gguf file", "nothing", "REFLEX_MODEL", "set it in the image")
    try:
        return [model, *shlex.split(options)]
    except ValueError as error:
        found, where, remedy = str(error), "REFLEX_OPTIONS", "close the quotes"
        raise InvalidInputError("the options cannot be read", "words as of a shell", found, where, remedy) from None
