"""A ring of pinned memory through which threads bring checked pieces of a file to the device. Used by arrival.py."""

import _thread
from posix import sched_getaffinity

from ... import native
from ...errors import OutOfMemoryError
from ...native import Int64
from . import driver
from .driver import call, word
from .upload import NO_TIMING

PARTS = 4  # pieces of a unit, which is copied at once (kernels/host/ring.py)
SLOTS = 12  # units in the ring: with 8 threads wait for them (docs/LOG.md)
THREADS = 12  # most; as many as it takes to read the page cache as fast as a device takes it
PREAD, YIELD = {"x86_64": 17, "aarch64": 67}, {"x86_64": 24, "aarch64": 124}  # system calls
ENDED, DAMAGED = 1 << 30, 1 << 31  # statuses of a piece
SERVE, BEGIN, JOIN, AWAIT = range(4)  # what native code is to do
OVER, FAILED = 2, 3  # words of the block that it works on; behind the latter what is to be copied


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
        self._block = (Int64 * 14)()
        self._held = None  # what a file's copying needs
        self._ends = []  # locks held while the threads run
        self.begun = False
        for _ in range(min(THREADS, len(sched_getaffinity(0))) - 1):
            end = _thread.allocate_lock()
            end.acquire()
            try:
                native.start_thread(self._serve, (), "state file", end)
            except OutOfMemoryError:
                break  # fewer do it as well
            self._ends.append(end)

    def begin(self, units, count):
        """Start copying, see kernels/host/ring.py; returns at once. `join` must follow before anything else is begun."""
        state = (Int64 * (2 + 3 * count))()
        self._held, at = (units, state), native.address_of
        task = at(units), count, PARTS, at(state), self._pinned, SLOTS, self.unit_bytes, at(self._events), at(self._functions)
        self._block[FAILED:] = [-1, *task, self._stream]
        self.begun = True
        self._do(BEGIN, len(self._ends))

    def queue(self, count):
        """Wait until the copies of the first `count` units are queued, or never will be."""
        self._do(AWAIT if self._ends else JOIN, count)

    def join(self):
        """Wait until everything that was begun is queued; None, or (unit, piece of it, status) of what could not be copied."""
        if not self.begun:
            return None
        self._do(JOIN)
        self.begun, failed = False, self._block[FAILED]
        return None if failed < 0 else (*divmod(failed >> 32, PARTS), failed & 0xFFFFFFFF)

    def _do(self, what, number=0):
        self._library.ring(native.address_of(self._block), what, number)

    def _serve(self):
        try:
            self.device.attach()
        finally:  # without the device each copy fails; `join` waits for every thread
            self._do(SERVE)

    def follow(self):
        """Let the device's stream wait for all copies queued so far."""
        call("cuEventRecord", self._done, self._stream)
        call("cuStreamWaitEvent", self.device.stream, self._done, 0)

    def lead(self):
        """Let copies wait for what the device's stream was given so far."""
        call("cuEventRecord", self._done, self.device.stream)
        call("cuStreamWaitEvent", self._stream, self._done, 0)

    def close(self):
        self._block[OVER] = 1
        self._do(BEGIN)
        for end in self._ends:
            end.acquire()
        call("cuStreamSynchronize", self._stream)
        if self._plain is None:
            self.device.free_pinned(self._pinned)
        else:
            self._plain.free()
        for event in (self._done, *self._events):
            call("cuEventDestroy_v2", event)
        call("cuStreamDestroy_v2", self._stream)
