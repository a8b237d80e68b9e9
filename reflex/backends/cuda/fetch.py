"""Pieces of model files into device memory at once, by several threads through pinned buffers. Called by asking.py."""

import _thread
from posix import sched_getaffinity

from ... import native
from ...errors import ModelFileError, OutOfMemoryError
from ...native import Int64
from . import driver
from .asking import BUFFER
from .driver import call, word
from .upload import NO_TIMING

BUFFERS, THREADS = 2, 8  # buffers of a thread (kernels/host/fetch.py); most threads
PIECES = 8192  # copied by one call
PREAD = {"x86_64": 17, "aarch64": 67}  # system calls
ENDED = 1 << 31  # status of fetch_pieces


class Copier:
    """Threads with pinned buffers, and the stream of their copies."""

    def __init__(self, device):
        self.device = device
        self._library = native.library()
        self._stream = word("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._done = word("cuEventCreate", NO_TIMING)
        self._table = native.alloc(32 * PIECES, "experts asked for")
        self._claimed = (Int64 * 1)()
        names = "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize"
        number = PREAD[native.machine()]
        self._functions = (Int64 * 5)(native.libc_address("syscall"), number, *map(driver.address, names))
        threads = min(THREADS, len(sched_getaffinity(0)))
        self._pinned = device.pinned(BUFFER * BUFFERS * threads)
        self._events = [(Int64 * BUFFERS)(*[word("cuEventCreate", NO_TIMING) for _ in range(BUFFERS)]) for _ in range(threads)]
        self._count = 0
        self._found = [-1] * threads
        self._locks = []  # (held until there is work, held until it is done) of every thread but the caller's
        self._over = False
        for number in range(1, threads):
            work, end = _thread.allocate_lock(), _thread.allocate_lock()
            work.acquire()
            end.acquire()
            try:
                native.start_thread(self._serve, (number, work, end), "experts")
            except OutOfMemoryError:
                break  # fewer do it as well
            self._locks.append((work, end))

    def run(self, pieces):
        """Copy pieces (device address, Shard, offset in its file, bytes) and let the device's stream wait for them."""
        for first in range(0, len(pieces), PIECES):
            part = pieces[first : first + PIECES]
            table = native.view(self._table.address, 4 * len(part), "q")
            for i, (target, shard, offset, size) in enumerate(part):
                table[4 * i], table[4 * i + 1], table[4 * i + 2], table[4 * i + 3] = target, shard.descriptor, offset, size
            self._claimed[0], self._count = 0, len(part)
            helping = self._locks[: len(part) - 1]
            for work, _ in helping:
                work.release()
            self._share(0)
            for _, end in helping:
                end.acquire()
            self._check(part)
        call("cuEventRecord", self._done, self._stream)
        call("cuStreamWaitEvent", self.device.stream, self._done, 0)

    def _serve(self, number, work, end):
        self.device.attach()
        while True:
            work.acquire()
            if self._over:
                end.release()
                return
            try:
                self._share(number)
            finally:
                end.release()

    def _share(self, number):
        at = native.address_of
        buffer = self._pinned + number * BUFFER * BUFFERS
        self._found[number] = self._library.fetch_pieces(
            self._table.address, self._count, at(self._claimed), buffer, BUFFER, at(self._events[number]), at(self._functions),
            self._stream,
        )  # fmt: skip

    def _check(self, part):
        for found in self._found:
            if found >= 0:
                _, shard, offset, size = part[found >> 32]
                self._found = [-1] * len(self._found)
                status = found & 0xFFFFFFFF
                if status == ENDED:
                    where = f"{shard.path} offset {offset}"
                    raise ModelFileError("the file cannot be read to its end", f"{size} more bytes", "fewer", where)
                raise driver.failure("the copy of an expert", status)

    def close(self):
        self._over = True
        for work, end in self._locks:
            work.release()
            end.acquire()
        call("cuStreamSynchronize", self._stream)
        self.device.free_pinned(self._pinned)
        for event in [self._done, *(event for pair in self._events for event in pair)]:
            call("cuEventDestroy_v2", event)
        call("cuStreamDestroy_v2", self._stream)
        self._table.free()
