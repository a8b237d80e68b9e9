"""A ring of pinned memory through which threads bring checked pieces of a file to the device. Used by arrival.py."""

import _thread
from posix import sched_getaffinity

from ... import native
from ...errors import OutOfMemoryError
from ...native import Int64
from . import driver
from .driver import call, word
from .upload import NO_TIMING

PARTS = 8  # pieces of a unit, which is copied at once (kernels/host/ring.py)
SLOTS = 4  # units in the ring
THREADS = 12  # most; as many as it takes to read the page cache as fast as a device takes it
PREAD, YIELD = {"x86_64": 17, "aarch64": 67}, {"x86_64": 24, "aarch64": 124}  # system calls
ENDED, DAMAGED, STOPPED = 1 << 30, 1 << 31, 1 << 29  # statuses of fill_ring
HEAD_WORDS, STATE_WORDS, QUEUED = 2, 3, 2  # of what the threads share


class Ring:
    """Threads, pinned memory, and the stream of their copies."""

    def __init__(self, device, piece):
        """`piece`: bytes under one digest."""
        self.device = device
        self.unit_bytes = PARTS * piece
        self._library = native.library()
        self._stream = word("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._done = word("cuEventCreate", NO_TIMING)
        machine, names = native.machine(), ("cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize")
        addresses = [driver.address(name) for name in names]
        self._functions = (Int64 * 6)(native.libc_address("syscall"), PREAD[machine], *addresses, YIELD[machine])
        self._plain = None
        try:
            self._pinned = device.pinned(SLOTS * self.unit_bytes)
        except OutOfMemoryError:  # the driver copies through its own
            self._plain = native.alloc(SLOTS * self.unit_bytes, "a state file")
            self._pinned = self._plain.address
        self._events = (Int64 * SLOTS)(*[word("cuEventCreate", NO_TIMING) for _ in range(SLOTS)])
        threads = min(THREADS, len(sched_getaffinity(0)))
        self._units = self._state = None  # of what was begun
        self._found = [-1] * threads
        self._locks = []  # (held until there is work, held until it is done) of every thread but the caller's
        self._helping = []
        self._over = False
        for number in range(1, threads):
            work, end = _thread.allocate_lock(), _thread.allocate_lock()
            work.acquire()
            end.acquire()
            try:
                native.start_thread(self._serve, (number, work, end), "state file")
            except OutOfMemoryError:
                break  # fewer do it as well
            self._locks.append((work, end))

    def begin(self, units, count):
        """Start copying, see fill_ring; returns at once. `join` must follow before anything else is begun."""
        self._units, self._count = units, count
        self._state = (Int64 * (HEAD_WORDS + STATE_WORDS * count))()
        self._flags = memoryview(self._state).cast("B").cast("q")[HEAD_WORDS + QUEUED :: STATE_WORDS]
        self._helping = list(self._locks)
        for work, _ in self._helping:
            work.release()

    def queued(self, count):
        """Whether the copies of the first `count` units are queued, or never will be."""
        return self._flags[:count].tolist().count(1) == count or max(self._found) >= 0

    @property
    def alone(self):
        """Whether nothing is copied before `join`."""
        return not self._helping

    def join(self):
        """Wait until everything that was begun is queued; None, or (unit, piece of it, status) of what could not be copied."""
        self._share(0)
        while self._helping:
            self._helping[-1][1].acquire()
            self._helping.pop()
        failed = [found for found in self._found if found >= 0 and found & 0xFFFFFFFF != STOPPED]
        self._found = [-1] * len(self._found)
        return (*divmod(min(failed) >> 32, PARTS), min(failed) & 0xFFFFFFFF) if failed else None

    def follow(self):
        """Let the device's stream wait for all copies queued so far."""
        call("cuEventRecord", self._done, self._stream)
        call("cuStreamWaitEvent", self.device.stream, self._done, 0)

    def lead(self):
        """Let copies wait for what the device's stream was given so far."""
        call("cuEventRecord", self._done, self.device.stream)
        call("cuStreamWaitEvent", self._stream, self._done, 0)

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
        self._found[number] = self._library.fill_ring(
            at(self._units), self._count, PARTS, at(self._state), self._pinned, SLOTS, self.unit_bytes, at(self._events),
            at(self._functions), self._stream,
        )  # fmt: skip

    def close(self):
        self._over = True
        for work, end in self._locks:
            work.release()
            end.acquire()
        call("cuStreamSynchronize", self._stream)
        if self._plain is None:
            self.device.free_pinned(self._pinned)
        else:
            self._plain.free()
        for event in (self._done, *self._events):
            call("cuEventDestroy_v2", event)
        call("cuStreamDestroy_v2", self._stream)
