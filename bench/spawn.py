"""Runs one command to its end and times it from just before the spawn: first output byte, exit, peak memory.

Called by bench/cold.py. The child inherits the processors asked for; the parent leaves them again at once and only
sleeps, so it never competes with the child. Peak memory is the kernel's ru_maxrss, which cannot be lower than this
process's own (about 15 MB). Refuses a command that fails or prints nothing.
"""

import json
import os
import select
import shutil
import sys
import time


class Run:
    """One finished process: milliseconds from spawn, bytes, and the JSON objects it printed."""

    __slots__ = ("exit", "first", "objects", "peak", "stdout")

    def __init__(self, first, exit, peak, stdout, stderr):
        self.first = first
        self.exit = exit
        self.peak = peak
        self.stdout = stdout
        self.objects = [*_objects(stdout), *_objects(stderr)]

    def phases(self):
        """{phase: milliseconds since exec} that the process reported about itself, or an empty dict."""
        return self._report().get("phases", {})

    def beside(self, name):
        """The same of another thread."""
        return self._report().get("beside", {}).get(name, {})

    def _report(self):
        return next((found for found in self.objects if found.get("type") == "phases"), {})


def _objects(data):
    for line in data.splitlines():
        if line.startswith(b"{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def _drain(out, err):
    """Read both pipes to their end; returns (ns of the first byte of `out` or None, bytes, bytes)."""
    first, chunks = None, {out: [], err: []}
    poll = select.poll()
    poll.register(out, select.POLLIN)
    poll.register(err, select.POLLIN)
    open_pipes = 2
    while open_pipes:
        for descriptor, _ in poll.poll():
            data = os.read(descriptor, 1 << 16)
            if first is None and descriptor == out and data:
                first = time.monotonic_ns()
            if not data:
                poll.unregister(descriptor)
                os.close(descriptor)
                open_pipes -= 1
            chunks[descriptor].append(data)
    return first, b"".join(chunks[out]), b"".join(chunks[err])


def run(words, cpus=None):
    """Spawn `words` on the processors `cpus` (a set, or None for all) and wait; returns a Run."""
    program = shutil.which(words[0])
    if program is None:
        sys.exit(f"no such command: {words[0]}")
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in ((null, 0), (out_end, 1), (err_end, 2))]
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus or everywhere)
    try:
        start = time.monotonic_ns()
        pid = os.posix_spawn(program, words, os.environ | {"REFLEX_T0": str(start)}, file_actions=actions)
    finally:
        os.sched_setaffinity(0, everywhere)
    for descriptor in (out_end, err_end, null):
        os.close(descriptor)
    first, stdout, stderr = _drain(out, err)
    _, status, usage = os.wait4(pid, 0)
    end = time.monotonic_ns()
    code = os.waitstatus_to_exitcode(status)
    if code or first is None:
        sys.exit(f"exit code {code} and {len(stdout)} bytes from: {' '.join(words)}\n{stderr.decode(errors='replace')[-2000:]}")
    return Run((first - start) / 1e6, (end - start) / 1e6, usage.ru_maxrss * 1024, stdout, stderr)
