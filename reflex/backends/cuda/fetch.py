"""Pieces of model files into device memory, by threads with pinned buffers that stay in native code (kernels/host/fetch.py).

Pieces are offered in lanes: what a router asked for goes before weights that all tokens need, and those before what is only guessed
to be asked for next. Called by upload.py and asking.py.
"""

import _thread
from posix import readlink, sched_getaffinity

from ... import native
from ...errors import ModelFileError, OutOfMemoryError
from ...native import Int64
from . import driver
from .driver import call, word
from .pinned import Pages

NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
BUFFER, BUFFERS = 1344 << 10, 2  # bytes of a piece, at most; buffers of a thread
THREADS, GUESSING = 8, 4  # threads, at most; those of them that also copy what is only guessed
ASKED, DENSE, GUESSED = range(3)  # lanes
OVER, PROBLEM, DESK_BYTES = 64, 128, 1024 + 3 * 32768 * 40  # of a desk
ENDED, REFUSED = 1 << 31, 201  # statuses: a file that ends early, CUDA_ERROR_INVALID_CONTEXT
ROOM = 64  # bytes behind a thread's buffers, for a piece


class Counter:
    """Pieces that were offered and are not queued yet."""

    __slots__ = ("address", "cell")

    def __init__(self):
        self.cell = Int64()
        self.address = native.address_of(self.cell)


class Buffers:
    """Memory of the threads. Needs no device: its pages are there before one is ready."""

    def __init__(self):
        self.threads = min(THREADS, max(1, len(sched_getaffinity(0)) - 1))
        self.each = BUFFER * BUFFERS + ROOM
        self.pages = Pages(self.threads * self.each, "buffers for experts")


class Copier:
    """The threads, and the stream of all their copies."""

    def __init__(self, device, buffers):
        self.device = device
        self.stream = word("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._library = native.library()
        self._desk = native.alloc(DESK_BYTES, "pieces of weights")
        self._buffers = buffers
        buffers.pages.pin(device)
        names = "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize"
        self._functions = (Int64 * len(names))(*map(driver.address, names))
        pairs = [[word("cuEventCreate", NO_TIMING) for _ in range(BUFFERS)] for _ in range(buffers.threads)]
        self._events = [(Int64 * BUFFERS)(*pair) for pair in pairs]
        self._guard = _thread.allocate_lock()
        self._problem = None  # of a thread that did not get the device
        self._ends = []  # locks, each held until a thread has ended
        for number in range(buffers.threads):
            end = _thread.allocate_lock()
            end.acquire()
            try:
                native.start_thread(self._serve, (number,), "experts", end)
            except OutOfMemoryError:
                if not number:
                    raise
                break  # fewer do it as well
            self._ends.append(end)

    def _serve(self, number):
        desk, at = self._desk.address, native.address_of
        try:
            self.device.attach()
        except BaseException as error:
            self._problem = error
            problem = native.view(desk + PROBLEM, 2, "q")  # pieces are counted down all the same: no one waits for ever
            problem[1] = REFUSED
            problem[0] = 2
        lanes, buffers = GUESSED + (number < GUESSING), self._buffers.pages.address + number * self._buffers.each
        functions, serve, events = at(self._functions), self._library.serve_pieces, at(self._events[number])
        serve(desk, lanes, buffers, BUFFER, events, functions, self.stream)

    def offer(self, lane, parts, base, wanted, counter):
        """Offer what experts are made of, one after the other; returns the number of pieces. `parts`: Int64 array of [descriptor,
        offset in the file, place behind the device address `base`, bytes of an expert]; `wanted`: [(expert, its place there)]."""
        at, room = native.address_of, (Int64 * 2)()
        pairs = (Int64 * (2 * len(wanted)))(*[number for pair in wanted for number in pair])
        where = self._desk.address, lane, at(parts), len(parts) // 4, base
        return self._library.offer_pieces(*where, at(pairs), len(wanted), BUFFER, counter.address, at(room))

    def withdraw(self, lane, counter):
        """Take back what no thread has taken of what was offered last in a lane; returns the number of pieces."""
        return self._library.withdraw_pieces(self._desk.address, lane, counter.address)

    def queued(self, counter):
        """Block until all pieces of a counter are queued on the stream; raises what prevented that."""
        room = (Int64 * 2)()
        self._library.await_pieces(counter.address, native.address_of(room))
        problem = native.view(self._desk.address + PROBLEM, 5, "q")
        if problem[0]:
            while problem[0] < 2:  # another thread is writing the rest
                continue
            if self._problem is not None:
                raise self._problem
            status, descriptor, offset, size = problem[1:]
            if status == ENDED:
                where = f"{readlink(f'/proc/self/fd/{descriptor}')} offset {offset}"
                raise ModelFileError("the file cannot be read to its end", f"{size} more bytes", "fewer", where)
            raise driver.failure("the copy of weights", status)

    def close(self):
        """End the threads, once nothing that was offered is missing; may be called again."""
        with self._guard:
            if self._desk is None:
                return
            self._close()
            self._desk = None

    def _close(self):
        native.view(self._desk.address + OVER, 1, "q")[0] = 1
        self._library.wake_pieces(self._desk.address)
        for end in self._ends:
            end.acquire()
        call("cuStreamSynchronize", self.stream)
        self._buffers.pages.free()
        for event in (event for pair in self._events for event in pair):
            call("cuEventDestroy_v2", event)
        call("cuStreamDestroy_v2", self.stream)
        self._desk.free()
