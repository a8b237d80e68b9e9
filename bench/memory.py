"""Peak memory of a cold `reflex system1`, against the part of the model file it touched.

    python bench/memory.py demo model2.gguf

Stops the process at its end with ptrace, while its memory still exists, and reads from /proc: the peak (VmHWM), and how
much of the model's own mapping is resident, which the page cache holds anyway. The promise is peak <= touched + 60 MB.
Linux only. Exit code 1 when a model breaks the promise.
"""

import argparse
import os
import shlex
import signal
import sys
from ctypes import CDLL, c_long, c_void_p, get_errno
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import record
from bench.cold import REFLEX
from reflex import demo

ALLOWANCE = 60_000_000  # bytes beyond the touched part of the file
PROMPT = "The capital of France is"
TRACE_ME, CONTINUE, SET_OPTIONS = 0, 7, 0x4200
ON_EXEC, ON_EXIT = 0x10, 0x40  # PTRACE_O_TRACEEXEC, PTRACE_O_TRACEEXIT
EXIT_STOP = signal.SIGTRAP | 6 << 8  # SIGTRAP with PTRACE_EVENT_EXIT


def _ptrace(request, pid, data=0):
    trace = CDLL(None, use_errno=True).ptrace
    trace.restype, trace.argtypes = c_long, (c_long, c_long, c_void_p, c_void_p)
    if trace(request, pid, None, data) == -1:
        raise OSError(get_errno(), f"ptrace {request}: {os.strerror(get_errno())}")


def _start(words):
    """Start `words` traced, with its output thrown away; returns its process id, stopped at exec."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _ptrace(TRACE_ME, 0)
        os.execvp(words[0], words)
    os.waitpid(pid, 0)
    _ptrace(SET_OPTIONS, pid, ON_EXEC | ON_EXIT)
    return pid


def _residents(pid, path):
    """(peak bytes of the process, resident bytes of its mappings of the file `path`)."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024
    touched, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = line.endswith(path)
        elif inside and words[0] == "Rss:":
            touched += int(words[1]) * 1024
    return peak, touched


def measure(words, path):
    """Run the command to its end; returns what `_residents` says at that moment."""
    pid = _start(words)
    found, deliver = None, 0
    while True:
        _ptrace(CONTINUE, pid, deliver)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            break
        if status >> 8 == EXIT_STOP:
            found = _residents(pid, os.path.realpath(path))
        stopped_by = os.WSTOPSIG(status)
        deliver = 0 if stopped_by == signal.SIGTRAP else stopped_by
    code = os.waitstatus_to_exitcode(status)
    if code or found is None:
        sys.exit(f"exit code {code} from: {shlex.join(words)}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--reflex", default=str(REFLEX), help="the reflex command to measure")
    options = parser.parse_args()
    rows = []
    for path in map(demo.resolve, options.models):
        words = [*shlex.split(options.reflex), "system1", path, PROMPT, "--candidate", " Paris", "--candidate", " London"]
        peak, touched = measure(words, path)
        model = record.model(path)
        rows.append({"model": model, "touched": touched, "peak": peak, "kept": peak - touched <= ALLOWANCE})
        print(f"{model['title']:<24} file {model['bytes'] / 1e6:7.1f} MB, touched {touched / 1e6:7.1f}, ", end="")
        print(f"peak {peak / 1e6:7.1f}, ", end="")
        print(f"own {(peak - touched) / 1e6:5.1f} ({'kept' if rows[-1]['kept'] else 'BROKEN'}: {ALLOWANCE / 1e6:.0f} allowed)")
    record.write("memory", "peak memory of a cold system1", {"prompt": PROMPT, "allowance": ALLOWANCE, "rows": rows})
    return 0 if all(row["kept"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
