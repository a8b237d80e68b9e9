"""Runs the command line of the source tree in a process of its own, as the launcher would: no site, one folder of packages."""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOOT = """
import sys
from time import perf_counter_ns, process_time_ns
first = perf_counter_ns(), process_time_ns()
sys.path += [{root!r}, {packages!r}]
from reflex.cli.front import main
main(first)
"""


def words(*argv, root=ROOT):
    """The command that runs `reflex` with `argv` from the tree `root`."""
    boot = BOOT.format(root=str(root), packages=sysconfig.get_path("purelib"))
    return [sys.executable, "-IS", "-c", boot, *map(str, argv)]


def reflex(*argv, root=ROOT, stdin=b"", **options):
    """Run to the end; the finished process, its streams as bytes."""
    return subprocess.run(words(*argv, root=root), input=stdin, capture_output=True, timeout=120, **options)
