"""The process that uses the inputs: makes or changes one, hands it to a target, and dies where that does harm. Started by fuzz.py.

The input under way always stands in a file that is shared with the parent, so that it survives whatever it does. A timer of
processor time, whose signal ends the process even within native code, is wound up before each input.
"""

import base64
import json
import mmap
import random as randoms
import resource
import signal
import sys
import time
import zlib
from pathlib import Path

STARTED = time.monotonic()
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(p) for p in (ROOT, ROOT / "tests", ROOT / "tests" / "pure", HERE) if str(p) not in sys.path]

SECONDS = 1.0  # of processor time for one input
MEMORY = 200 << 20  # bytes
ADDRESSES = 8 << 30  # bytes of address space, in case a target itself goes astray
KEPT = 32 << 20  # bytes of inputs that a guided run goes on from: they count as its memory
BETWEEN = 0.02  # seconds between two looks at the memory
CORPUS = HERE / "corpus"
HEAD = 24  # bytes before the input in the shared file: executions done, processor time in ns, bytes of the input
SHARED = 1 << 21  # bytes of that file
UNUSABLE = 3  # exit code where a target cannot work here


class UnusableError(Exception):
    """A target lacks something on this machine."""


def target(name):
    return __import__(f"target_{name}").Target()


def corpus(name):
    """The recorded inputs of a target."""
    path = CORPUS / f"{name}.json"
    return [unpacked(text) for text in json.loads(path.read_text())] if path.exists() else []


def packed(data):
    return base64.b85encode(zlib.compress(data, 9)).decode()


def unpacked(text):
    return zlib.decompress(base64.b85decode(text))


class Lines:
    """Lines of reflex/ that were reached: (file, line)."""

    def __init__(self):
        self.seen = set()

    @staticmethod
    def ours(code):
        return f"{ROOT}/reflex/" in code.co_filename


class Traced(Lines):
    """By a trace function. A function whose lines are all known is traced no more."""

    def __init__(self):
        super().__init__()
        self.left = {}  # code -> lines not yet reached

    def start(self):
        sys.settrace(self.call)

    def stop(self):
        sys.settrace(None)

    def call(self, frame, event, arg):
        code = frame.f_code
        left = self.left.get(code)
        if left is None:
            left = self.left[code] = {line for _, _, line in code.co_lines() if line} if self.ours(code) else set()
        return self.line if left else None

    def line(self, frame, event, arg):
        self.left[frame.f_code].discard(frame.f_lineno)
        self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self.line


class Monitored(Lines):
    """By sys.monitoring (Python 3.12): every line reports once, and costs nothing from then on."""

    def __init__(self):
        super().__init__()
        self.events = sys.monitoring.events
        sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, "fuzz")
        sys.monitoring.register_callback(sys.monitoring.COVERAGE_ID, self.events.LINE, self.line)

    def start(self):
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, self.events.LINE)

    def stop(self):
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)

    def line(self, code, number):
        if self.ours(code):
            self.seen.add((code.co_filename, number))
        return sys.monitoring.DISABLE


def peak():
    """The most memory that this process has had, in bytes. Not ru_maxrss: a child begins with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


class Child:
    """Executes inputs and counts. A target that uses one input many times says how often in `took`, and names each use by
    `watch`, which is set here: bytes that, put behind the input, stand for that use alone."""

    def __init__(self, name, shared):
        self.target = target(name)
        self.target.watch = self.watch
        self.shared = shared
        self.room = len(shared) - HEAD
        self.outcomes = {}
        self.done = self.size = 0
        self.base, self.peak, self.looked = peak(), 0, 0.0

    def put(self, data, start=0):
        """`data` at `start` of the input that is under way, which ends with it."""
        self.shared[HEAD + start : HEAD + start + len(data)] = data
        size = start + len(data)
        spent = time.process_time_ns()
        self.shared[:HEAD] = self.done.to_bytes(8, "little") + spent.to_bytes(8, "little") + size.to_bytes(8, "little")
        return size

    def watch(self, data):
        self.put(data[: self.room - self.size], self.size)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)

    def execute(self, data):
        data = data[: self.room]
        self.size = self.put(data)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome = self.target.run(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.done += getattr(self.target, "took", 1)
        now = time.monotonic()
        if now - self.looked > BETWEEN:
            self.looked, self.peak = now, peak() - self.base
            if self.peak > MEMORY:
                raise AssertionError(f"{self.peak >> 20} MiB of memory")
        return outcome

    def fuzz(self, count, seconds, seed, guided):
        """Inputs until `count` executions or `seconds`; guided: those that reach a line or an outcome first are gone on from."""
        random, known = randoms.Random(seed), corpus(self.target.__module__.removeprefix("target_"))
        lines = (Monitored if hasattr(sys, "monitoring") else Traced)() if guided else None
        until = STARTED + seconds
        kept = self.replay(known, lines)
        while self.done < count and time.monotonic() < until:
            old = kept and random.random() < 0.7
            data = self.target.again(random.choice(list(kept)), random) if old else self.target.make(random)
            reached = self.reached(data, lines)
            if reached and sum(map(len, kept)) < KEPT:
                kept[data] = reached
        if hasattr(self.target, "outcomes"):
            self.outcomes = self.target.outcomes()
        found = {"executions": self.done, "outcomes": self.outcomes, "peak_bytes": self.peak}
        if guided:
            found |= {"lines": len(lines.seen), "kept": [[reached, packed(data)] for data, reached in kept.items()]}
        return found | {"processor_seconds": round(time.process_time(), 1)}

    def replay(self, known, lines):
        """Recorded inputs first; those to go on from, with the number of lines that each was first to reach."""
        reached = {data: self.reached(data, lines) for data in known}
        return {data: number for data, number in reached.items() if number}

    def reached(self, data, lines):
        """Executes an input; how many lines and outcomes no other had before."""
        if not lines:
            self.execute(data)
            return 0
        before = len(lines.seen) + len(self.outcomes)
        lines.start()
        try:
            self.execute(data)
        finally:
            lines.stop()
        return len(lines.seen) + len(self.outcomes) - before


def main(arguments):
    """Prints one JSON line at the end."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    with open(arguments.child, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    try:
        worker = Child(arguments.targets[0], shared)
    except (UnusableError, ImportError) as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    if arguments.one:
        worker.execute(Path(arguments.one).read_bytes())
        return 0
    print(json.dumps(worker.fuzz(arguments.count, arguments.seconds, arguments.seed, arguments.guided)))
    return 0
