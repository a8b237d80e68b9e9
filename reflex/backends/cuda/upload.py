"""Weights from model files into device memory, in the order of first use, while the caller goes on.

Three ways, best first. Registered: the file's pages are pinned chunk by chunk and copied as soon as each is pinned. Ring:
threads read the file into pinned buffers. Pageable: the driver copies through its own. Where most of a file stays where it is,
pages are neither mapped nor pinned: the threads that fetch experts (fetch.py) copy the rest as well. Registering a *private*
read-only mapping never returns from the driver (measured, H200, driver 580), so this module maps the files itself, shared, and only
on file systems where that is known to work; nothing else in the project may register mappings of files.
"""

import _thread
from _ctypes import addressof
from posix import getpid, sched_getaffinity
from time import perf_counter_ns

from ... import native
from ...errors import InternalError, ModelFileError, OutOfMemoryError
from ...native import PAGE, libc
from . import driver
from .driver import call, word
from .shard import Shard

REGISTER_READ_ONLY = 8  # CU_MEMHOSTREGISTER_READ_ONLY
READ_ONLY_REGISTER_SUPPORTED = 113  # CU_DEVICE_ATTRIBUTE
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
# Numbers of statfs where registering is known to return.
FILE_SYSTEMS = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs"}
SMALL, LARGE, MANY_BYTES = 16 << 20, 32 << 20, 1 << 30  # bytes pinned at once, for files below and above MANY_BYTES
PINNING_THREADS = 1  # bench/upload.py tries more
RING_BYTES, RING_BUFFERS, RING_THREADS = 4 << 20, 2, 4  # of one buffer; buffers per thread
GAP = 256  # bytes between pieces that are copied along rather than copied around
AHEAD = 8  # chunks that are asked from a cold disk before they are needed
WILL_NEED, POPULATE_READ = 3, 22  # MADV_*
PINNED_SECONDS = 2.0  # after the last copy was queued; a command has ended by then, a process that lives on gets its memory back


class Upload:
    """What goes where, then the copying. Made and filled without a device; `begin` starts it."""

    def __init__(self, headers):
        """`headers`: the shards of a gguf File."""
        self.shards = [Shard(header) for header in headers]
        self.bytes = 0
        self.copier = None  # whose threads are to copy, instead of the ways below
        self.closes = False  # whether the copier ends with this
        self.way = None  # registered, ring, pageable or copier
        self.queued_ns = 0  # from begin until the last copy was queued
        self._pieces = []  # [target offset, shard, file offset, bytes, mark]
        self._marks = []  # [lock held until the event is recorded, event]
        self._left = []  # pieces not yet queued, per mark
        self._recorded = 0  # marks
        self._guard = _thread.allocate_lock()
        self._problem = None
        self._registered = {}  # (shard, chunk) -> address
        self._running = self._end = None  # locks held while the thread runs, and until it may unpin
        self._mapping = None  # lock held while pages are mapped
        self._ended = False

    # ---- what goes where ----

    def add(self, target, address, size):
        """Append bytes at `address` of the reader's mapping, to lie at `target` from the base given to `begin`."""
        self.bytes += size
        shard = next((s for s in self.shards if s.start <= address < s.start + s.size), None)
        if shard is None:
            raise InternalError("an address outside the model files is to be uploaded", where=hex(address))
        offset = address - shard.start
        if self._pieces:
            last = self._pieces[-1]
            gap = offset - last[2] - last[3]
            if last[1] is shard and 0 <= gap <= GAP and target - offset == last[0] - last[2] and last[4] == len(self._marks):
                last[3] += gap + size
                return
        self._pieces.append([target, shard, offset, size, len(self._marks)])

    def mark(self):
        """A number for all that was added so far, to `wait` for."""
        lock = _thread.allocate_lock()
        lock.acquire()
        self._marks.append([lock, 0])
        return len(self._marks) - 1

    # ---- copying ----

    def populate(self):
        """Map the cached pages of the files on a thread of its own: there is time for it while the device starts."""
        for shard in self.shards:
            shard.map()
        self._mapping = _thread.allocate_lock()
        self._mapping.acquire()
        native.start_thread(self._map_pages, (), "upload", self._mapping)

    def _map_pages(self):
        for shard in self.shards:
            address = shard.map()
            for at in range(0, shard.size, LARGE):
                if self._ended or not shard.cached(at):
                    return  # a cold file is read when it is pinned, several chunks ahead
                libc("madvise", 3)(address + at, min(LARGE, shard.size - at), POPULATE_READ)

    def begin(self, device, base):
        """Start copying on a thread; device memory at `base` is written. Everything added last gets a mark of its own."""
        with self._guard:
            if self._ended:
                return
            self._device, self._base = device, base
            self._begin()

    def _begin(self):
        if not self._marks or (self._pieces and self._pieces[-1][4] == len(self._marks)):
            self.mark()
        self._started = perf_counter_ns()
        self._stream = self.copier.stream if self.copier else word("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        for mark in self._marks:
            mark[1] = word("cuEventCreate", NO_TIMING)
        self._running, self._end = _thread.allocate_lock(), _thread.allocate_lock()
        self._running.acquire()
        self._end.acquire()
        native.start_thread(self._run, (), "upload", self._running)

    def wait(self, mark=-1):
        """Let everything queued on the device's stream from now on wait for a mark; blocks until its copies are queued."""
        lock, event = self._marks[mark]
        with lock:
            if self._problem is not None:
                raise self._problem
        call("cuStreamWaitEvent", self._device.stream, event, 0)

    def _run(self):
        try:
            self._device.attach()
            self._queue()
            self._device.mark("upload")
            self._end.acquire(timeout=PINNED_SECONDS)
        except BaseException as problem:
            self._fail(problem)
        finally:
            try:
                self._release()
            except BaseException as problem:
                self._fail(problem)

    def _queue(self):
        """Queue every copy."""
        if self.copier is not None:
            self._through_copier()
        else:
            self._by_itself()
        self.queued_ns = perf_counter_ns() - self._started

    def _by_itself(self):
        chunk = SMALL if self.bytes < MANY_BYTES else LARGE
        items = list(_split(self._pieces, chunk))
        self._left = [0] * len(self._marks)
        for item in items:
            self._left[item[4]] += 1
        self._done(None)
        rest = self._through_registration(items, chunk)
        if rest:
            self._through_ring(rest)

    def _through_copier(self):
        """Offer all pieces and record the event of each mark when its copies are queued."""
        from .fetch import DENSE, Counter

        self.way = "copier"
        parts = [[piece for piece in self._pieces if piece[4] == mark] for mark in range(len(self._marks))]
        self._left, counters = [len(part) for part in parts], [Counter() for _ in parts]
        for part, counter in zip(parts, counters, strict=True):
            numbers = [n for target, shard, offset, size, _ in part for n in (shard.descriptor, offset, target, size)]
            if part:
                self.copier.offer(DENSE, (native.Int64 * len(numbers))(*numbers), self._base, [(0, 0)], counter)
        for part, counter in zip(parts, counters, strict=True):
            self.copier.queued(counter)
            self._done(None)
            for piece in part:
                self._done(piece)

    def _release(self):
        """Give back pins, mappings and descriptors."""
        if self.copier is None:  # which may be gone by now, with its stream
            call("cuStreamSynchronize", self._stream)
        for address in self._registered.values():
            call("cuMemHostUnregister", address)
        self._registered.clear()
        if self.closes:
            self.copier.close()
        self._close()

    def _close(self):
        self._ended = True
        if self._mapping is not None:
            with self._mapping:  # until no thread maps pages any more
                self._mapping = None
        for shard in self.shards:
            shard.close()

    def _fail(self, problem):
        with self._guard:
            if self._problem is None:
                self._problem = problem
            while self._recorded < len(self._marks):
                self._marks[self._recorded][0].release()
                self._recorded += 1

    def _done(self, item):
        """A piece has been queued: record the events of the marks that are complete with it."""
        with self._guard:
            if item is not None:
                self._left[item[4]] -= 1
            while self._recorded < len(self._marks) and self._left[self._recorded] == 0:
                lock, event = self._marks[self._recorded]
                call("cuEventRecord", event, self._stream)
                self._recorded += 1
                lock.release()

    def _copy(self, item, source):
        call("cuMemcpyHtoDAsync_v2", self._base + item[0], source, item[3], self._stream)

    def _through_registration(self, items, chunk):
        """Queue pieces from pages pinned on the way; returns the pieces left when pinning is not to be had."""
        known = all(shard.file_system() in FILE_SYSTEMS for shard in self.shards)
        if not (known and self._device.attribute(READ_ONLY_REGISTER_SUPPORTED)):
            return items
        self._chunks = {}  # (shard, number) -> pieces
        for item in items:
            self._chunks.setdefault((item[1], item[2] // chunk), []).append(item)
        self._order, self._next, self._asked, self._refused = list(self._chunks), 0, 0, []
        self._together(min(PINNING_THREADS, len(self._order)), self._pin, chunk)
        return self._refused

    def _pin(self, chunk):
        """Take chunks until none is left: pin each and queue its pieces."""
        while self._problem is None:
            with self._guard:
                number, self._next = self._next, self._next + 1
                ahead, self._asked = range(self._asked, min(len(self._order), number + 1 + AHEAD)), number + 1 + AHEAD
            if number >= len(self._order):
                return
            for following in ahead:
                shard, place = self._order[following]
                _read_ahead(shard, place, chunk)
            shard, place = key = self._order[number]
            address = shard.map() + place * chunk
            size = min(chunk, (shard.size + PAGE - 1 & -PAGE) - place * chunk)
            if self._refused or driver.function("cuMemHostRegister_v2")(address, size, REGISTER_READ_ONLY):
                self._refused += self._chunks[key]
                continue
            self.way = "registered"
            self._registered[key] = address
            for item in self._chunks[key]:
                self._copy(item, shard.map() + item[2])
                self._done(item)

    def _together(self, threads, work, *arguments):
        """Do `work` here and on threads - 1 others; raises the first problem of any."""
        ends = []

        def run():
            try:
                self._device.attach()
                work(*arguments)
            except BaseException as problem:
                self._fail(problem)

        for _ in range(threads - 1):
            end = _thread.allocate_lock()
            end.acquire()
            try:
                native.start_thread(run, (), "upload", end)
            except OutOfMemoryError:
                break  # fewer do it as well
            ends.append(end)
        try:
            work(*arguments)
        except BaseException as problem:
            self._fail(problem)
        for end in ends:
            end.acquire()
        if self._problem is not None:
            raise self._problem

    def _through_ring(self, items):
        """Queue pieces through pinned buffers that threads fill; through the driver's own where there are none."""
        self._items, self._next = list(_split(items, RING_BYTES)), 0
        for item in items:
            self._left[item[4]] -= 1
        for item in self._items:
            self._left[item[4]] += 1
        threads = min(RING_THREADS, len(sched_getaffinity(0)), -(-len(self._items) // RING_BUFFERS))
        size = RING_BYTES * RING_BUFFERS * threads
        cell = native.Int64()
        status = driver.function("cuMemHostAlloc")(addressof(cell), size, 0)
        if status:
            self.way = "pageable"
            for item in self._items:
                self._copy(item, item[1].map() + item[2])
                self._done(item)
            return
        self.way = "ring"
        buffers = [cell.value + k * RING_BYTES * RING_BUFFERS for k in range(threads)]
        try:
            self._together(threads, self._fill, buffers)
        finally:
            call("cuStreamSynchronize", self._stream)
            call("cuMemFreeHost", cell.value)

    def _fill(self, buffers):
        """Take pieces until none is left; two buffers in turn, each reused when its copy has ended."""
        with self._guard:
            buffer = buffers.pop()
        events = [word("cuEventCreate", NO_TIMING) for _ in range(RING_BUFFERS)]
        turn = 0
        while self._problem is None:
            with self._guard:
                number, self._next = self._next, self._next + 1
            if number >= len(self._items):
                break
            item, place = self._items[number], buffer + turn % RING_BUFFERS * RING_BYTES
            if turn >= RING_BUFFERS:
                call("cuEventSynchronize", events[turn % RING_BUFFERS])
            _read(item[1], item[2], item[3], place)
            self._copy(item, place)
            call("cuEventRecord", events[turn % RING_BUFFERS], self._stream)
            self._done(item)
            turn += 1

    # ---- the end ----

    def finish(self):
        """End the upload before its device is given back: wait for the copies, give back what is left."""
        with self._guard:
            self._ended = True
        if self._running is None:
            self._close()
        elif getpid() == self._device.process:
            if self._end.locked():
                self._end.release()
            with self._running:
                self._device.attach()
                for _, event in self._marks:
                    call("cuEventDestroy_v2", event)
                if self.copier is None:
                    call("cuStreamDestroy_v2", self._stream)
            self._marks, self._running = [], None


def _split(pieces, chunk):
    """The pieces cut at multiples of `chunk` in their files."""
    for target, shard, offset, size, mark in pieces:
        while size:
            part = min(size, chunk - offset % chunk)
            yield [target, shard, offset, part, mark]
            target, offset, size = target + part, offset + part, size - part


def _read_ahead(shard, number, chunk):
    """Ask the system to read a chunk from the disk unless it seems to be in memory."""
    first = number * chunk
    if not all(shard.cached(first + at) for at in (0, chunk // 2, chunk - 1)):
        libc("madvise", 3)(shard.map() + first, min(chunk, shard.size - first), WILL_NEED)


def _read(shard, offset, size, place):
    """Read from the file to an address; ModelFileError when the file has shrunk."""
    while size:
        count = libc("pread", 4)(shard.descriptor, place, size, offset)
        if count <= 0:
            where = f"{shard.path} offset {offset}"
            raise ModelFileError("the file cannot be read to its end", f"{size} more bytes", "none", where)
        offset, place, size = offset + count, place + count, size - count
