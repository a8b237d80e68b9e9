"""Runs a target on made-up inputs in a process of its own, where a crash, a hang or much memory is seen; keeps such inputs.

    python tests/fuzz/driver.py TARGET [--count N] [--seconds S] [--seed K] [--guided] [--record]

A target is a file target_NAME.py with a class Target: make(random) gives an input (bytes), again(data, random) changes one, and
run(data) uses it and returns the outcome in a word; any exception is a finding. More than SECONDS of processor time for one input
is a hang; more than MEMORY beyond what the target needs by itself is too much. `--guided` keeps the inputs that reach lines of
reflex/ that no other has reached, and goes on from them; `--record` writes counts into bench/results/fuzz.json and, with --guided,
the smallest of those inputs into corpus/.
"""

import argparse
import base64
import json
import mmap
import random as randoms
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(p) for p in (ROOT, ROOT / "tests", ROOT / "tests" / "pure", HERE) if str(p) not in sys.path]

SECONDS = 1.0  # of processor time for one input
MEMORY = 200 << 20  # bytes
FOUND = ROOT / "build" / "fuzz"  # inputs of findings
CORPUS = HERE / "corpus"
HEAD = 16  # bytes before the input in the shared file: executions done, bytes of the input
KEPT, KEPT_BYTES = 40, 1500  # inputs of a recorded corpus, and bytes of each
TARGETS = ("walk", "header", "tokenizer", "template", "argv", "load")


def target(name):
    return __import__(f"target_{name}").Target()


def corpus(name):
    """The recorded inputs of a target."""
    path = CORPUS / f"{name}.json"
    return [base64.b85decode(text) for text in json.loads(path.read_text())] if path.exists() else []


# ---- the child -------------------------------------------------------------------------------------------


class Lines:
    """Lines of reflex/ that were reached, while a trace function is set."""

    def __init__(self):
        self.seen = set()
        self.new = False

    def call(self, frame, event, arg):
        return self.line if f"{ROOT}/reflex/" in frame.f_code.co_filename else None

    def line(self, frame, event, arg):
        key = frame.f_code.co_filename, frame.f_lineno
        if key not in self.seen:
            self.seen.add(key)
            self.new = True
        return self.line


def peak():
    """The most memory that this process has had, in bytes. Not ru_maxrss: a child begins with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


class Child:
    """Executes inputs; the one under way always stands in the shared file."""

    def __init__(self, name, shared):
        self.target = target(name)
        self.shared = shared
        self.outcomes = {}
        self.done = 0
        self.base = peak()
        self.peak = 0
        self.room = shared.size() - HEAD

    def execute(self, data):
        data = data[: self.room]
        self.shared[:HEAD] = self.done.to_bytes(8, "little") + len(data).to_bytes(8, "little")
        self.shared[HEAD : HEAD + len(data)] = data
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome = self.target.run(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.done += getattr(self.target, "batch", getattr(self.target, "texts", 1))
        if self.done % 64 == 0:
            self.peak = peak() - self.base
            if self.peak > MEMORY:
                raise AssertionError(f"{self.peak >> 20} MiB of memory")

    def fuzz(self, count, seconds, seed, kept=None):
        random, lines = randoms.Random(seed), Lines()
        until = time.monotonic() + seconds
        while self.done < count and time.monotonic() < until:
            old = kept and random.random() < 0.7
            data = self.target.again(random.choice(kept), random) if old else self.target.make(random)
            if kept is None:
                self.execute(data)
                continue
            lines.new = False
            sys.settrace(lines.call)
            try:
                self.execute(data)
            finally:
                sys.settrace(None)
            if lines.new:
                kept.append(data)
        if hasattr(self.target, "outcomes"):
            self.outcomes = self.target.outcomes()
        return {"executions": self.done, "outcomes": self.outcomes, "peak_bytes": self.peak, "lines": len(lines.seen)}


def child(arguments):
    """Entry of the child process; prints a JSON line at the end."""
    with open(arguments.child, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    worker = Child(arguments.target, shared)
    if arguments.one:
        worker.execute(Path(arguments.one).read_bytes())
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for data in corpus(arguments.target):
        worker.execute(data)
    kept = list(corpus(arguments.target)) if arguments.guided else None
    found = worker.fuzz(arguments.count, arguments.seconds, arguments.seed, kept)
    if arguments.guided:
        found["kept"] = [base64.b85encode(data).decode() for data in kept]
    print(json.dumps(found))


# ---- the parent ------------------------------------------------------------------------------------------


def spawn(arguments, *more):
    command = [sys.executable, str(HERE / "driver.py"), *map(str, arguments), *map(str, more)]
    return subprocess.run(command, capture_output=True, text=True)


def run(name, count, seconds=1e9, seed=1, guided=False):
    """{executions, outcomes, seconds, findings}; a finding is (how the process ended, its last words, the input's path)."""
    start = time.monotonic()
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(1 << 21)
        more = ["--guided"] if guided else []
        done = spawn((name, "--child", file.name, "--count", count, "--seconds", seconds, "--seed", seed, *more))
        if done.returncode == 0:
            found = json.loads(done.stdout)
            found["findings"] = []
        else:
            data = Path(file.name).read_bytes()
            size = int.from_bytes(data[8:16], "little")
            found = {"executions": int.from_bytes(data[:8], "little"), "outcomes": {}}
            found["findings"] = [finding(name, done, data[HEAD : HEAD + size])]
    found["seconds"] = round(time.monotonic() - start, 1)
    return found


def finding(name, done, data):
    words = (done.stderr.strip().splitlines() or [""])[-1]
    FOUND.mkdir(parents=True, exist_ok=True)
    data = minimized(name, data, done.returncode)
    path = FOUND / f"{name}-{abs(hash(data)) % (1 << 32):08x}.bin"
    path.write_bytes(data)
    return {"code": done.returncode, "words": words, "input": str(path.relative_to(ROOT)), "bytes": len(data)}


def minimized(name, data, code, tries=60):
    """The input with pieces left out for as long as the process still ends the same way."""
    with tempfile.NamedTemporaryFile() as shared, tempfile.NamedTemporaryFile() as one:
        shared.truncate(1 << 21)

        def fails(data):
            Path(one.name).write_bytes(data)
            return spawn((name, "--child", shared.name, "--one", one.name)).returncode == code

        piece = len(data) // 2
        while piece and tries:
            at = 0
            while at < len(data) and tries:
                tries -= 1
                shorter = data[:at] + data[at + piece :]
                if fails(shorter):
                    data = shorter
                else:
                    at += piece
            piece //= 2
    return data


def write_corpus(name, kept):
    """The shortest of the inputs that reached something new."""
    CORPUS.mkdir(exist_ok=True)
    small = sorted({text for text in kept if len(text) <= KEPT_BYTES}, key=lambda text: (len(text), text))[:KEPT]
    (CORPUS / f"{name}.json").write_text(json.dumps(small, indent=0) + "\n")


def note(name, seed, guided, found):
    """Into bench/results/fuzz.json, one entry per target and way of looking for inputs."""
    from bench import record

    path = record.RESULTS / "fuzz.json"
    old = json.loads(path.read_text())["runs"] if path.exists() else {}
    kept = found.pop("kept", [])
    old[f"{name} guided" if guided else name] = {"seed": seed, **found, **({"kept": len(kept)} if kept else {})}
    what = "Made-up inputs per target of tests/fuzz: executions, outcomes, findings; peak_bytes: more memory than at the start"
    record.write("fuzz", what, {"runs": dict(sorted(old.items()))})
    if guided:
        write_corpus(name, kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--count", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guided", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    found = run(arguments.target, arguments.count, arguments.seconds, arguments.seed, arguments.guided)
    print(json.dumps({key: value for key, value in found.items() if key != "kept"}, indent=1))
    if arguments.record:
        note(arguments.target, arguments.seed, arguments.guided, found)
    return bool(found["findings"])


if __name__ == "__main__":
    sys.exit(main())
