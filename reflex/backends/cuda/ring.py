"""A ring of pinned memory through which threads bring checked pieces of a file to the device, and from there to a file. Used by
arrival.py and state.py.
"""

import _thread
from posix import sched_getaffinity

from ... import native
from ...errors import OutOfMemoryError, ReflexError
from ...native import Int64
from . import driver
from .driver import call, word
from .pinned import Pages
from .upload import NO_TIMING

PARTS = 4  # pieces of a unit, which is copied at once (kernels/host/ring.py)
SLOTS = 12  # units in the ring, at most: with 8 threads wait for them (docs/LOG.md)
THREADS = 12  # most; as many as it takes to read the page cache as fast as a device takes it
PREAD, YIELD = {"x86_64": 17, "aarch64": 67}, {"x86_64": 24, "aarch64": 124}  # system calls
UNWRITTEN, ENDED, DAMAGED = 1 << 28, 1 << 30, 1 << 31  # statuses of a piece; the first with an error number of the system
SERVE, BEGIN, JOIN, AWAIT = range(4)  # what native code is to do
OVER, FAILED = 2, 3  # words of the block that it works on; behind the latter what is to be copied
UNIT_WORDS = 7


class Block:
    """A block of a file: where it lies, number of its first piece, address of that piece's digest, runs (kernels/host/ring.py)."""

    __slots__ = ("digests", "ends", "first", "offset", "runs", "size")

    def __init__(self, offset, size, first, digests, ends=(), runs=None):
        self.offset = offset
        self.size = size  # bytes
        self.first = first
        self.digests = digests
        self.ends = ends  # bytes of the block that the layers of each group end before (arrival.py)
        self.runs = runs

    def unit(self, number, descriptor, piece):
        """The words of a unit; nothing behind the block's end."""
        at, pieces, runs = number * PARTS * piece, number * PARTS, self.runs
        if at >= self.size:
            return ()
        place = descriptor, self.offset + at, min(PARTS * piece, self.size - at)
        return *place, native.address_of(runs), len(runs) // 3, self.first + pieces, self.digests + 8 * pieces


def slots_for(piece, size):
    """How many units a ring has room for that so many bytes in pieces pass through."""
    return max(1, min(SLOTS, -(-size // (PARTS * piece))))


def room(piece, size):
    """Memory for such a ring."""
    return Pages(slots_for(piece, size) * PARTS * piece, "a state file")


def ring_of(plan, device, piece, size, take_room=room):
    """The plan's Ring; a new one where it has none with so much room. `take_room`: makes its memory, as `room` does."""
    if plan.ring is None or plan.ring.slots < slots_for(piece, size):
        if plan.ring is not None:
            plan.ring.close()
            plan.ring = None
        plan.ring = Ring(device, piece, take_room(piece, size))
    return plan.ring


class Ring:
    """Threads, pinned memory, and the stream of their copies."""

    def __init__(self, device, piece, pages):
        """`piece`: bytes under one digest. `pages`: a `room`, which is this ring's from now on."""
        self.device = device
        self.unit_bytes = PARTS * piece
        self.slots = pages.size // self.unit_bytes
        self._library = native.library()
        self._stream = word("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        self._done = word("cuEventCreate", NO_TIMING)
        machine, names = native.machine(), ("cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize")
        addresses = [driver.address(name) for name in names]
        back = driver.address("cuMemcpyDtoHAsync_v2")
        self._functions = (Int64 * 7)(native.libc_address("syscall"), PREAD[machine], *addresses, YIELD[machine], back)
        self._pages, self._problem = pages, None
        self._pin()
        count = self.slots * PARTS  # of pieces; a unit on its way to the device takes one
        self._events = (Int64 * count)(*[word("cuEventCreate", NO_TIMING) for _ in range(count)])
        self._block = (Int64 * 15)()
        self._held = None  # what a file's copying needs
        self._ends = []  # locks held while the threads run
        self.begun = False
        for _ in range(min(THREADS, count, len(sched_getaffinity(0))) - 1):
            end = _thread.allocate_lock()
            end.acquire()
            try:
                native.start_thread(self._serve, (), "state file", end)
            except OutOfMemoryError:
                break  # fewer do it as well
            self._ends.append(end)

    def _pin(self):
        try:
            self._pages.pin(self.device)
        except ReflexError:
            return  # the driver copies through its own

    def begin(self, words, out=False):
        """Start copying units, see kernels/host/ring.py; returns at once. `join` must follow before anything else is begun. `out`:
        from the device to the file."""
        count = len(words) // UNIT_WORDS
        units, state = (Int64 * len(words))(*words), (Int64 * (3 + 3 * count))()
        self._held, at = (units, state), native.address_of
        slots = self._pages.address, self.slots, self.unit_bytes, at(self._events)
        self._block[FAILED:] = [-1, at(units), count, PARTS, at(state), *slots, at(self._functions), self._stream, out]
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
        if failed >= 0 and self._problem is not None:
            raise self._problem
        return None if failed < 0 else (*divmod(failed >> 32, PARTS), failed & 0xFFFFFFFF)

    def _do(self, what, number=0):
        self._library.ring(native.address_of(self._block), what, number)

    def _serve(self):
        try:
            self.device.attach()
        except BaseException as problem:  # each of its copies fails; `join`, which waits for every thread, says why
            self._problem = problem
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
        self._pages.free()
        for event in (self._done, *self._events):
            call("cuEventDestroy_v2", event)
        call("cuStreamDestroy_v2", self._stream)
