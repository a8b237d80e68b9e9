"""Pieces of a file through a ring of pinned buffers into device memory, each checked where it was read. One call per thread.

A unit is what is copied at once: neighbouring pieces of the file, which several threads read into one slot of the ring. Whoever
ends the last of them queues the copies. Called by reflex/backends/cuda/ring.py.
"""

from ..digest import digest_of
from ..export import export, helper
from ..foreign import call4
from ..intrinsics import atomic_add, atomic_load, atomic_store, call7, compare_exchange, load_i64, pause

UNIT_BYTES, RUN_BYTES, HEAD_BYTES, STATE_BYTES, EVENT_BYTES = 56, 24, 16, 24, 8
STOPPED, ENDED, DAMAGED = 1 << 29, 1 << 30, 1 << 31
SPINS = 64


@helper
def until(address, value, failed, functions):
    """Wait until a word has a value; STOPPED once another thread has failed."""
    spins = 0
    while atomic_load(address) != value:
        if atomic_load(failed) != 0:
            return STOPPED
        pause()
        spins += 1
        if spins % SPINS == 0:
            number = load_i64(functions + 40)
            call7(load_i64(functions), number, 0, 0, 0, 0, 0, 0)
    return 0


@helper
def free_slot(state, number, slots, event, functions):
    """Wait until the copies of the unit that had the slot of unit `number` have ended; a status. One thread asks the driver."""
    mine = state + HEAD_BYTES + number * STATE_BYTES
    if compare_exchange(mine, 0, 1) == 0:
        return until(mine, 2, state + 8, functions)
    status = until(mine - slots * STATE_BYTES + 16, 1, state + 8, functions)
    if status == 0:
        status = call4(load_i64(functions + 32), event, 0, 0, 0)
    if status == 0:
        atomic_store(mine, 2)
    return status


@helper
def read(functions, descriptor, place, size, offset):
    """`size` bytes of a file to `place`; 0, or ENDED."""
    done, number = 0, load_i64(functions + 8)
    while done < size:
        got = call7(load_i64(functions), number, descriptor, place + done, size - done, offset + done, 0, 0)
        if got <= 0:
            return ENDED
        done += got
    return 0


@helper
def copy(functions, unit, place, stream):
    """Queue the copies of a unit that lies at `place`; a status."""
    start, run = load_i64(unit + 8), load_i64(unit + 24)
    stop, end = start + load_i64(unit + 16), run + RUN_BYTES * load_i64(unit + 32)
    while run < end:
        first = load_i64(run)
        low, high = max(first, start), min(first + load_i64(run + 8), stop)
        if low < high:
            status = call4(load_i64(functions + 16), load_i64(run + 16) + low - first, place + low - start, high - low, stream)
            if status != 0:
                return status
        run += RUN_BYTES
    return 0


@export
def fill_ring(units, count, parts, state, ring, slots, slot_bytes, events, functions, stream):
    """Copy units whose pieces no other thread has claimed; -1, or piece of a unit << 32 | status of the first that failed.

    `units`: int64[count, 7]: descriptor, offset in the file, bytes (at most `slot_bytes`), address and number of runs, number of
    the first piece, address of the digests of its pieces. A unit has `parts` pieces of slot_bytes / parts bytes, or fewer. Runs:
    int64[n, 3]: offset in the file, bytes, device address; what lies in none is read and checked but not copied. `state`: zeros,
    int64[2 + 3 x count]: pieces claimed, whether a thread has failed, and of each unit: 2 when its slot is free, pieces read, 1
    when its copies are queued. `events`: of each slot. `functions`: addresses of libc's syscall, its number of pread, then
    cuMemcpyHtoDAsync, cuEventRecord, cuEventSynchronize, and the number of sched_yield. Statuses besides the driver's: of a file
    that ends early ENDED, of another digest DAMAGED; STOPPED: because another thread has failed.
    """
    piece_bytes = slot_bytes // parts
    while True:
        claim = atomic_add(state, 1)
        number, part = claim // parts, claim % parts
        if number >= count:
            return -1
        unit, slot = units + number * UNIT_BYTES, number % slots
        place, event, status = ring + slot * slot_bytes, load_i64(events + slot * EVENT_BYTES), 0
        if number >= slots:
            status = free_slot(state, number, slots, event, functions)
        start = part * piece_bytes
        size = min(piece_bytes, load_i64(unit + 16) - start)
        if status == 0 and size > 0:
            status = read(functions, load_i64(unit), place + start, size, load_i64(unit + 8) + start)
            expected = load_i64(load_i64(unit + 48) + 8 * part)
            if status == 0 and digest_of(place + start, size, load_i64(unit + 40) + part) != expected:
                status = DAMAGED
        mine = state + HEAD_BYTES + number * STATE_BYTES
        if status == 0 and atomic_add(mine + 8, 1) == parts - 1:
            status = copy(functions, unit, place, stream)
            if status == 0:
                status = call4(load_i64(functions + 24), event, stream, 0, 0)
            if status == 0:
                atomic_store(mine + 16, 1)
        if status != 0:
            atomic_store(state + 8, 1)
            return claim << 32 | status
