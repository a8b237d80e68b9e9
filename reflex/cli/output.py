"""Where a command's words go: results to stdout, all else to stderr, JSON lines and phase times on request.

Writes go straight to the file descriptors: nothing is left to flush when the process ends by `_exit`. A closed stdout
raises BrokenPipeError, any other failed write InputOutputError. Used by every command; made by the front.
"""

from posix import write as _write
from time import perf_counter_ns, sleep

from ..errors import InputOutputError, ModelFileError

SCHEMA_VERSION = 1


def _send(descriptor, data):
    while data:
        try:
            data = data[_write(descriptor, data) :]
        except BlockingIOError:
            sleep(0.001)


def _encode(text):
    """UTF-8; bytes that came in through argv undecodable go out as they came."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


class Output:
    """The output of one command."""

    __slots__ = ("_beside", "_clock", "_marks", "_start", "command", "json", "meter", "timings")

    def __init__(self, command, json=False, timings=False, first=None):
        self.command = command
        self.json = json
        self.timings = timings
        self._marks = []
        self._beside = []
        self._start = None
        self.meter = None  # of energy, where it is asked for
        if timings:
            self._begin(first)

    def _begin(self, first):
        from .. import settings

        clock, used = first or (perf_counter_ns(), 0)
        self._start = settings.start_ns()
        self._clock = "exec"
        if self._start is None:
            # The kernel's own start time has 10 ms steps. CPU time since exec is a lower bound of the time passed, and
            # equals it when the files are cached and a core is free.
            self._start, self._clock = clock - used, "exec estimated from CPU time"
        self._marks.append(("launch", clock))
        self.mark("arguments")

    def mark(self, name):
        """The phase `name` ends now."""
        if self.timings:
            self._marks.append((name, perf_counter_ns()))

    def text(self, text):
        """Write text of the result."""
        self._put(_encode(text))

    @staticmethod
    def _put(data):
        try:
            _send(1, data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputOutputError("cannot write the result", found=error.strerror, where="stdout") from None

    def note(self, text):
        """Write one line for the person; a closed stderr is not an error."""
        try:
            _send(2, _encode(f"{text}\n"))
        except OSError:
            return

    def warn(self, text):
        """Write a warning that does not stop the work."""
        self.note(f"reflex: warning: {text}")

    def settle(self, file):
        """Warn where the model was written to while it was read."""
        for path in file.rewritten():
            self.warn(f"{path} was written to while it was used: the result may be wrong")

    def record(self, kind, fields):
        """Write one JSON line of type `kind`."""
        self._put(self._line(kind, fields))

    @staticmethod
    def _line(kind, fields):
        from .jsonline import encode

        return _encode(encode({"schema_version": SCHEMA_VERSION, "type": kind, **fields}) + "\n")

    def error(self, problem):
        """Report a ReflexError: one line on stderr, and the `error` object under --json."""
        self.note(problem.line())
        if self.json:
            try:
                self.record("error", problem.as_dict())
            except InputOutputError:
                return  # stderr has said it

    def lost(self, path):
        """(bytes for stderr, bytes for stdout) of the error that native code reports: a page of a model that its file has lost."""
        problem = ModelFileError(
            "the file became shorter while it was read", where=path, remedy="replace a model by renaming another file over it"
        )
        return _encode(problem.line() + "\n"), self._line("error", problem.as_dict()) if self.json else b""

    def weigh(self, backend):
        """The energy of what follows will be in the phases; to be called before anything touches the device."""
        from ..energy import Meter

        self.meter = Meter(backend)
        self.mark("idle power")

    def computes(self, plan):
        """`plan` is what computes: its device thread's phases belong to the report."""
        self.beside("device thread", getattr(plan, "marks", ()))
        if self.meter:
            self.meter.plan = plan

    def beside(self, name, marks):
        """Phases of another thread: (phase, perf_counter_ns at its end), the first one where the thread began; it may still
        grow. None: no such thread."""
        if marks:
            self._beside.append((name, marks))

    def phases(self, marks=None):
        """{phase: milliseconds since process start at which it ended}, in order."""
        return {name: round((at - self._start) / 1e6, 3) for name, at in (self._marks if marks is None else marks)}

    def finish(self):
        """Report the phases if they were asked for."""
        if not self.timings:
            return
        phases = self.phases()
        others = {name: self.phases(marks) for name, marks in self._beside}
        energy = self.meter.result() if self.meter else None
        if self.json:
            more = {"beside": others} if others else {}
            more |= {"energy": energy} if energy else {}
            self.record("phases", {"command": self.command, "clock": self._clock, "phases": phases, **more})
            return
        self._table("phase", phases, f"   ({self._clock})")
        for name, marks in others.items():
            self._table(name, marks, "", next(iter(marks.values()), 0.0))
        if energy:
            from ..energy import text

            self.note(text(energy))

    def _table(self, title, phases, remark, before=0.0):
        self.note(f"{title:<14}{'ms':>9}{'since exec':>12}{remark}")
        for name, at in phases.items():
            self.note(f"{name:<14}{at - before:9.2f}{at:12.2f}")
            before = at
