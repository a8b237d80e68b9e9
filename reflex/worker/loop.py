"""The order of requests: one at a time, each on a timeline of its own; cancelling; what an error leaves behind.

A request sees nothing of those before it: it begins an empty timeline, and the cache only saves it work, since tokens that were
computed before are, to the bit, what it would compute itself. It ends early where its client cancels it or leaves, or a signal
comes: before the next batch of tokens, or after the token at hand. Whatever goes wrong is an answer, and the next request works;
only a device that fails ends the worker. Called by start.
"""

import gc
from time import monotonic, perf_counter_ns

from .. import native
from ..errors import DeviceError, InternalError, InvalidInputError, ModelFileError, OutOfMemoryError, ReflexError, StateError
from . import protocol
from .channel import TOO_LONG, Channel, Gone

LARGE = 1 << 18  # bytes of a line, after which memory goes back to the system at once
CANCEL_BYTES = 1024  # longer lines are no cancels that work before their turn
TAKEN = ("file", "tokenizer", "messages", "template", "bos_token", "eos_token")  # names of variables that reflex.chat sets itself


class Cancelled(KeyboardInterrupt):
    """The request is to end here. What is interrupted by Ctrl-C is interrupted by this too."""


class Worker:
    """A model that answers. `file`, `tokenizer`, `session`: as open_model gives them."""

    def __init__(self, file, tokenizer, session, signals, stall):
        self.file = file
        self.tokenizer = tokenizer
        self.session = session
        self.signals = signals
        self.stall = stall
        self.started = monotonic()
        self.counts = {"requests": 0, "errors": 0, "cancelled": 0}
        self.channel = self.line = None  # of the request at hand
        self.number = None  # its id
        self.busy = self.cancelled = self.large = False
        self.foreign = False  # whether the cache may hold what this worker did not compute
        self.begun = 0  # when it began, perf_counter_ns
        session.watch(self.watch)

    # ---- for requests ----

    def timeline(self, steady):
        """An empty timeline for the request at hand, which can be cancelled from here on. `steady`: its batches will be so."""
        self._begin()
        if not (steady or self.session.plan.steady):  # what the cache holds could change a bit
            self.session.forget()
        return self.session.fork()

    def state(self, timeline, prompt, source, target):
        """What a request's states ask for, a State; None where it asks for none."""
        if source is None and target is None:
            return None
        from .states import State

        self.foreign = source is not None
        return State(timeline, prompt, source, target)

    def prompt(self, prompt, messages, variables):
        """The text, or the token ids, that a request's fields ask for."""
        if (prompt is None) == (messages is None):
            found = "neither" if prompt is None else "both"
            raise InvalidInputError("a request has one prompt", "prompt or messages", found)
        if messages is None:
            return prompt
        from .. import chat

        for name in TAKEN:
            if name in variables:
                raise InvalidInputError("a variable of the template is not free", "another name", name, "variables")
        return chat.prompt(self.file, self.tokenizer, messages, **variables)

    def watch(self):
        """Raise Cancelled where the request at hand is to end; called before every batch and between tokens."""
        if self.busy:
            self.channel.check()
            if self.cancelled or self.channel.gone or self.signals.number:
                raise Cancelled

    def send(self, kind, fields):
        """An answer to the request at hand. What failed on a thread meanwhile is raised instead of a result that was computed."""
        if kind == "result" and self.busy:
            native.raise_failed()
        self._put(kind, fields)

    def _put(self, kind, fields):
        self.counts["cancelled"] += fields.get("finish_reason") == "cancelled"
        data = protocol.answer(kind, self.number, fields)
        self.large |= len(data) >= LARGE
        self.channel.send(data)

    def times(self, **more):
        """The `timings` of an answer, in milliseconds; `more`: moments since the request began, in ns of perf_counter_ns."""
        now = perf_counter_ns()
        spans = {name: at - self.begun for name, at in (*more.items(), ("total", now))}
        return {name: round(span / 1e6, 3) for name, span in (("waited", self.begun - self.line.at), *spans.items())}

    # ---- clients ----

    def serve(self, source, sink, idle=None, rival=None):
        """Answer one client until it ends, or a signal comes. Gone where it left or did not read."""
        channel = self.channel = Channel(source, sink, self.signals, self.stall, self._look)
        try:
            while self._answer(channel.next(idle, rival)):
                pass
            for line in channel.left() if self.signals.number else ():
                self._refuse(line)
            if channel.gone:
                raise Gone("closed")
        finally:
            self.channel = self.line = None

    def _look(self, line, earlier):
        """A cancel works at once on what came before it: the request at hand, and lines that wait for their turn."""
        if not (self.busy or earlier) or line.data is TOO_LONG or len(line.data) > CANCEL_BYTES:
            return
        try:
            said = protocol.read(line.data)
            protocol.identity(said)
            name, fields = protocol.checked(said)
        except ReflexError:  # said when its turn comes
            return
        if name == "cancel":
            line.request = fields
            if self.busy and meant(line, self.number):
                line.hit = self.cancelled = True

    def _answer(self, line):
        """Answer a line; False where there is none. What was large is given back before the next one is waited for."""
        if line is None:
            return False
        self.line, self.number, self.begun = line, None, perf_counter_ns()
        self.large = line.data is TOO_LONG or line.size >= LARGE
        self.counts["requests"] += 1
        try:
            self._carry_out(line)
        finally:
            self.busy = False
            if self.foreign:
                self.session.forget()
                self.foreign = False
        self.line = line = None
        self.tidy()
        return True

    def _carry_out(self, line):
        try:
            name, fields = self._understood(line)
            protocol.command(name).run(self, **fields)
        except Gone:
            raise
        except Cancelled:
            self._ended_early(name)
        except DeviceError as error:  # a device does not come back
            self._failed(error)
            raise
        except ReflexError as error:
            self._failed(error)
        except MemoryError:
            remedy = "ask for less, or start the worker with a shorter context (--ctx)"
            self._failed(OutOfMemoryError("out of memory", remedy=remedy))
        except Exception as error:
            self.session.forget()
            remedy = "report it, with the request"
            self._failed(InternalError(f"{type(error).__name__}: {error}", where=place_of(error), remedy=remedy))

    def _failed(self, error):
        self.busy = False
        self.counts["errors"] += 1
        self._put("error", protocol.problem(error))

    def tidy(self):
        """Give back to the system what a large request took: the C library would keep it, in pieces."""
        if self.large:
            self.large = False
            gc.collect()  # the interpreter's own lists of free objects too
            try:
                native.libc("malloc_trim", 1)(0)
            except OSError:  # not glibc
                return

    def _understood(self, line):
        if line.data is TOO_LONG:
            remedy = "send less, or token ids"
            raise InvalidInputError("the request is too long", f"at most {protocol.LONGEST_LINE} bytes", "more", remedy=remedy)
        said = protocol.read(line.data)
        self.number = protocol.identity(said)
        return protocol.checked(said)

    def _begin(self):
        """From here on the request can be cancelled, and is where a cancel has come already."""
        self.busy, self.cancelled = True, False
        for later in self.channel.arrived:
            if later.request is not None and meant(later, self.number):
                later.hit = self.cancelled = True
        self.watch()

    def _ended_early(self, name):
        """The answer to a request that was cancelled and has nothing to tell."""
        if self.channel.gone:
            raise Gone("closed")
        self._put("result", {"command": name, "finish_reason": "cancelled", "timings": self.times()})

    def _refuse(self, line):
        """The answer to a line whose turn does not come any more."""
        self.line, self.number = line, None
        problem = StateError("the worker is ending", "a running worker", "a signal to stop")
        try:
            self._understood(line)
        except ReflexError as error:
            problem = error
        self._put("error", protocol.problem(problem))

    def unspoiled(self):
        """Refuse to answer from a file whose content has changed since it was opened."""
        for path in self.file.rewritten():
            expected, found = "the file as it was opened", "another content"
            raise ModelFileError("the model was written to while it was used", expected, found, path, "start the worker again")


def meant(cancel, number):
    """Whether a cancel speaks of the request with this id."""
    target = cancel.request["target"]
    return target is None or (type(target) is type(number) and target == number)


def place_of(error):
    """Where an unexpected exception was raised: function and line."""
    place = error.__traceback__
    while place.tb_next:
        place = place.tb_next
    return f"{place.tb_frame.f_code.co_name}, line {place.tb_lineno}"
