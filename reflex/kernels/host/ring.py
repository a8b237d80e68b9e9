"""Pieces of a file through a ring of pinned buffers into device memory, each checked where it was read; and back into a file.

A unit is what is copied to the device at once: neighbouring pieces of the file, which several threads read into one slot of the
ring. Whoever ends the last of them queues the copies. On the way back each thread has room for one piece: it waits for the device's
copy of it, works out its digest and writes it. The threads sleep here between files, so that none waits for the interpreter. Called
by reflex/backends/cuda/ring.py.
"""

from ..digest import digest_of
from ..export import export, helper
from ..foreign import call4
from ..intrinsics import atomic_add, atomic_load, atomic_store, call7, compare_exchange, load_i64, pause, store_64
from ..system import by_machine, system_call4

UNIT_BYTES, RUN_BYTES, HEAD_BYTES, STATE_BYTES, EVENT_BYTES = 56, 24, 24, 24, 8
UNWRITTEN, STOPPED, ENDED, DAMAGED = 1 << 28, 1 << 29, 1 << 30, 1 << 31
INTERRUPTED, NO_SPACE = -4, 28  # EINTR, ENOSPC
BEGIN_WRITING = 2  # SYNC_FILE_RANGE_WRITE
SPINS = 64
WAIT, WAKE, ALL = 128, 129, 1 << 30  # of futexes of one process
# Words of the block that the threads share, and what `ring` is to do.
TURN, LEFT, OVER, FAILED, UNITS, COUNT, PARTS, STATE, BUFFERS, SLOTS, SLOT_BYTES, EVENTS, FUNCTIONS, STREAM, OUT = range(0, 120, 8)
SERVE, BEGIN, JOIN, AWAIT = range(4)


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
def write(descriptor, place, size, offset):
    """`size` bytes at `place` to a file, whose disk may begin with them at once; 0, or UNWRITTEN with the error's number."""
    done = 0
    while done < size:
        got = system_call4(by_machine(18, 68), descriptor, place + done, size - done, offset + done)
        if got == 0:
            return UNWRITTEN | NO_SPACE
        if got > 0:
            done += got
        elif got != INTERRUPTED:
            return UNWRITTEN | -got
    system_call4(by_machine(277, 84), descriptor, offset, size, BEGIN_WRITING)  # what fails here fails at the end too
    return 0


@helper
def copy(block, unit, start, stop, place):
    """Queue the copies of what lies in the file from `start` to `stop` and at `place` here; a status."""
    functions, stream, out = load_i64(block + FUNCTIONS), load_i64(block + STREAM), load_i64(block + OUT)
    run = load_i64(unit + 24)
    end = run + RUN_BYTES * load_i64(unit + 32)
    while run < end:
        first = load_i64(run)
        low, high = max(first, start), min(first + load_i64(run + 8), stop)
        if low < high:
            here, there = place + low - start, load_i64(run + 16) + low - first
            if out != 0:
                status = call4(load_i64(functions + 48), here, there, high - low, stream)
            else:
                status = call4(load_i64(functions + 16), there, here, high - low, stream)
            if status != 0:
                return status
        run += RUN_BYTES
    return 0


@helper
def save(block, claim, mine):
    """Copy a piece to this thread's room, work out its digest and write it; a status. What lies behind the last run is zeros."""
    parts, slot_bytes = load_i64(block + PARTS), load_i64(block + SLOT_BYTES)
    unit, part = load_i64(block + UNITS) + claim // parts * UNIT_BYTES, claim % parts
    each = slot_bytes // parts
    size = min(each, load_i64(unit + 16) - part * each)
    if size <= 0:
        return 0
    functions, place = load_i64(block + FUNCTIONS), load_i64(block + BUFFERS) + mine * each
    start, end = load_i64(unit + 8) + part * each, load_i64(unit + 24) + RUN_BYTES * load_i64(unit + 32)
    behind = start
    if load_i64(unit + 32) > 0:
        behind = max(start, load_i64(end - RUN_BYTES) + load_i64(end - RUN_BYTES + 8))
    for at in range((behind - start) & -8, size, 8):
        store_64(place + at, 0)
    event, stream = load_i64(load_i64(block + EVENTS) + mine * EVENT_BYTES), load_i64(block + STREAM)
    status = copy(block, unit, start, start + size, place)
    if status == 0:
        status = call4(load_i64(functions + 24), event, stream, 0, 0)
    if status == 0:
        status = call4(load_i64(functions + 32), event, 0, 0, 0)
    if status != 0:
        return status
    store_64(load_i64(unit + 48) + 8 * part, digest_of(place, size, load_i64(unit + 40) + part))
    return write(load_i64(unit), place, size, start)


@helper
def piece(block, claim):
    """Read and check a piece, and queue the copies of its unit if it was the last; a status."""
    parts, slots, slot_bytes = load_i64(block + PARTS), load_i64(block + SLOTS), load_i64(block + SLOT_BYTES)
    functions, state = load_i64(block + FUNCTIONS), load_i64(block + STATE)
    number, part = claim // parts, claim % parts
    unit, slot = load_i64(block + UNITS) + number * UNIT_BYTES, number % slots
    place, event = load_i64(block + BUFFERS) + slot * slot_bytes, load_i64(load_i64(block + EVENTS) + slot * EVENT_BYTES)
    if number >= slots:
        status = free_slot(state, number, slots, event, functions)
        if status != 0:
            return status
    start = part * (slot_bytes // parts)
    size = min(slot_bytes // parts, load_i64(unit + 16) - start)
    if size > 0:
        status = read(functions, load_i64(unit), place + start, size, load_i64(unit + 8) + start)
        if status != 0:
            return status
        if digest_of(place + start, size, load_i64(unit + 40) + part) != load_i64(load_i64(unit + 48) + 8 * part):
            return DAMAGED
    mine = state + HEAD_BYTES + number * STATE_BYTES
    if atomic_add(mine + 8, 1) == parts - 1:
        first = load_i64(unit + 8)
        status = copy(block, unit, first, first + load_i64(unit + 16), place)
        if status == 0:
            status = call4(load_i64(functions + 24), event, load_i64(block + STREAM), 0, 0)
        if status != 0:
            return status
        atomic_store(mine + 16, 1)
    return 0


@helper
def share(block):
    """Take pieces until none is left or one has failed."""
    state, end = load_i64(block + STATE), load_i64(block + COUNT) * load_i64(block + PARTS)
    out, mine = load_i64(block + OUT), atomic_add(state + 16, 1)
    if out != 0 and mine >= load_i64(block + SLOTS) * load_i64(block + PARTS):
        return 0  # no room; others have some
    while True:
        claim = atomic_add(state, 1)
        if claim >= end or atomic_load(state + 8) != 0:
            return 0
        status = save(block, claim, mine) if out != 0 else piece(block, claim)
        if status != 0:
            if status != STOPPED:
                compare_exchange(block + FAILED, -1, claim << 32 | status)
            atomic_store(state + 8, 1)
            return 0


@export
def ring(block, what, number):
    """SERVE: be a thread that takes its share whenever BEGIN is called, until OVER is set. JOIN: take a share and wait for the
    others. AWAIT: wait until the copies of the first `number` units are queued, or one has failed.

    `block`: 15 words. TURN counts beginnings; LEFT: threads at work, which BEGIN sets to `number`; FAILED: -1, or piece << 32 |
    status of the first that failed: the driver's, ENDED for a file that ends early, DAMAGED for another digest, UNWRITTEN | errno.
    OUT: whether pieces go from the device to the file; then digests are written, not compared. UNITS:
    int64[COUNT, 7]: descriptor, offset in the file, bytes (at most SLOT_BYTES), address and number of runs, number of the first
    piece, address of the digests of its pieces. A unit has PARTS pieces of SLOT_BYTES / PARTS bytes, or fewer. Runs: int64[n, 3]:
    offset in the file, bytes, device address; what lies in none is read and checked but not copied. STATE: zeros,
    int64[3 + 3 x COUNT]: pieces claimed, whether a thread has failed, threads that took a share, and of each unit: 2 when its slot
    is free, pieces read, 1 when its copies are queued. BUFFERS, EVENTS: of each slot, and of each piece that they have room for.
    FUNCTIONS: addresses of libc's syscall, its number of pread, then cuMemcpyHtoDAsync, cuEventRecord, cuEventSynchronize, the
    number of sched_yield, cuMemcpyDtoHAsync.
    """
    futex = by_machine(202, 98)
    if what == BEGIN:
        atomic_store(block + LEFT, number)
        atomic_add(block + TURN, 1)
        system_call4(futex, block + TURN, WAKE, ALL, 0)
        return 0
    if what == AWAIT:
        state = load_i64(block + STATE)
        for i in range(number):
            until(state + HEAD_BYTES + i * STATE_BYTES + 16, 1, state + 8, load_i64(block + FUNCTIONS))
        return 0
    if what == JOIN:
        share(block)
        left = atomic_load(block + LEFT)
        while left > 0:
            system_call4(futex, block + LEFT, WAIT, left, 0)
            left = atomic_load(block + LEFT)
        return 0
    seen = number
    while True:
        turn = atomic_load(block + TURN)
        if turn == seen:
            system_call4(futex, block + TURN, WAIT, turn, 0)
            continue
        seen = turn
        if load_i64(block + OVER) != 0:
            return 0
        share(block)
        if atomic_add(block + LEFT, -1) == 1:
            system_call4(futex, block + LEFT, WAKE, ALL, 0)
