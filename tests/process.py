"""Runs the command line of the source tree in a process of its own, as the launcher would: no site, one folder of packages.

Whatever must happen has SECONDS to do so: on shared machines a second may take minutes, and a test that passes waits for nothing.
"""

import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300
BOOT = """
import _signal
import sys
from time import perf_counter_ns, process_time_ns
first = perf_counter_ns(), process_time_ns()
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
sys.path += [{root!r}, {packages!r}]
{before}
from reflex.cli.front import main
main(first)
"""
# Python for `before` of a worker: in every request it stops at the check numbered `at` (1: before any work; then one for each
# batch and token) until the request is to end there: cancelled, its client gone, a signal. So a test may take its time for that,
# and what follows is counted; if nothing comes, the request goes on after some minutes.
HELD = """
import time
from reflex.worker.loop import Worker
begin, watch, checks = Worker._begin, Worker.watch, 0
def begun(self):
    global checks
    checks = 0
    begin(self)
def watched(self):
    global checks
    checks += self.busy
    until = time.monotonic() + 200
    while checks == {at} and not (self.cancelled or self.channel.gone or self.signals.number) and time.monotonic() < until:
        self.channel._wait(1)
    watch(self)
Worker._begin, Worker.watch = begun, watched
"""


def words(*argv, root=ROOT, before=""):
    """The command that runs `reflex` with `argv` from the tree `root`; `before`: Python that runs first."""
    boot = BOOT.format(root=str(root), packages=sysconfig.get_path("purelib"), before=before)
    return [sys.executable, "-IS", "-c", boot, *map(str, argv)]


def reflex(*argv, root=ROOT, stdin=b"", before="", **options):
    """Run to the end; the finished process, its streams as bytes."""
    return subprocess.run(words(*argv, root=root, before=before), input=stdin, capture_output=True, timeout=SECONDS, **options)


def held_port():
    """(socket, number) of a port for a server that cannot be asked which one it took: held until the socket is closed. The system
    gives it to nobody who asks for any; a server that names it may listen there, since both allow addresses to be used again."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]


def until(holds):
    """Wait until something is so."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.01)
