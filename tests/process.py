"""Runs the command line of the source tree in a process of its own, as the launcher would: no site, one folder of packages."""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def words(*argv, root=ROOT, before=""):
    """The command that runs `reflex` with `argv` from the tree `root`; `before`: Python that runs first."""
    boot = BOOT.format(root=str(root), packages=sysconfig.get_path("purelib"), before=before)
    return [sys.executable, "-IS", "-c", boot, *map(str, argv)]


def reflex(*argv, root=ROOT, stdin=b"", before="", **options):
    """Run to the end; the finished process, its streams as bytes."""
    return subprocess.run(words(*argv, root=root, before=before), input=stdin, capture_output=True, timeout=120, **options)
