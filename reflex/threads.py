"""Numbered pieces of work on a few threads: work that native code does, so that the interpreter's lock is free."""

import _thread
from posix import sched_getaffinity

from . import native
from .errors import OutOfMemoryError

MOST = 8  # threads: fewer than saturate the memory of any machine


def together(work, count, where, most=MOST):
    """Call work(0) to work(count - 1) on at most `most` threads, this one included; raises the error of the lowest number that
    failed. `where`: what the threads are for."""
    problems, waiting, ends = {}, list(range(count))[::-1], []

    def run():
        while True:
            try:
                number = waiting.pop()
            except IndexError:
                return
            try:
                work(number)
            except BaseException as problem:
                problems[number] = problem
                waiting.clear()

    def thread():
        native.watch_thread()
        run()

    for _ in range(min(most, count, len(sched_getaffinity(0))) - 1):
        end = _thread.allocate_lock()
        end.acquire()
        try:
            native.start_thread(thread, (), where, end)
        except OutOfMemoryError:
            break  # fewer do it as well
        ends.append(end)
    try:
        run()
    finally:
        for end in ends:
            end.acquire()
    if problems:
        raise problems[min(problems)]


class Rooms:
    """Buffers of one size for whoever works: as many as work at once. To be used by `with`."""

    def __init__(self, size, what):
        self._size, self._what = size, what
        self._free = []

    def take(self):
        """A buffer that nobody uses, of zeros or of what it was used for before."""
        try:
            return self._free.pop()
        except IndexError:
            return native.alloc(self._size, self._what)

    def give(self, room):
        """The buffer is not used any more."""
        self._free.append(room)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for room in self._free:
            room.free()
