"""Pieces of files into device memory through pinned buffers, by threads that stay in native code.

Whoever wants bytes on the device offers pieces in a lane of a desk; the threads take them, those of the first lane before those of
the second. A thread reads a piece into one of its two buffers and queues the copy while the copy from the other is under way.
Called by reflex/backends/cuda/fetch.py, which owns the desk.

A desk, in bytes: at 0 how often pieces were offered, an int64 whose lower half idle threads sleep on (a futex); at 64 whether it
is over; at 128 what went wrong: [0 nothing, 1 being written, 2 written; status; descriptor; offset; bytes]; then for each lane how
many pieces were offered so far, and 64 bytes further how many were taken; from PIECES on the pieces of each lane, in a ring. A
piece: [device address, descriptor, offset, bytes, address of a counter that falls when its copy is queued]. The first two lanes are
served by all threads; the last, of guesses, by the first few only, so that little stands before what is asked for meanwhile.
"""

from ..export import export, helper
from ..foreign import call4
from ..intrinsics import atomic_add, atomic_load, atomic_store, compare_exchange, load_i64, pause, store_64
from ..system import by_machine, system_call, system_call4

LANES, CAPACITY, PIECE_BYTES = 3, 32768, 40
OVER, PROBLEM, COUNTS, PIECES = 64, 128, 256, 1024
LANE_BYTES, TAKEN = 128, 64
SPINS, NAP = 4000, 20000  # looks before a thread sleeps; ns that a waiting one sleeps at once
WAIT, WAKE, EVERYONE = 128, 129, 1 << 30  # of a private futex
ENDED = 1 << 31  # status where a file ends early
EVENT_BYTES = 8


@helper
def _take(desk, lanes, piece):
    """Copy the next piece of the first of `lanes` lanes that has one to `piece`; 1 if there was one."""
    for lane in range(lanes):
        place = desk + COUNTS + lane * LANE_BYTES
        while True:
            number = atomic_load(place + TAKEN)
            if number >= atomic_load(place):
                break
            row = desk + PIECES + (lane * CAPACITY + number % CAPACITY) * PIECE_BYTES
            for word in range(0, PIECE_BYTES, 8):
                store_64(piece + word, load_i64(row + word))
            if compare_exchange(place + TAKEN, number, number + 1) == 1:  # else another thread has it
                return 1
    return 0


@helper
def _copy(piece, buffer, event, functions, stream):
    """Read a piece and queue its copy, once the last from this buffer has ended; a status."""
    descriptor, offset, size = load_i64(piece + 8), load_i64(piece + 16), load_i64(piece + 24)
    status = call4(load_i64(functions + 16), event, 0, 0, 0)
    if status != 0:
        return status
    done = 0
    while done < size:
        got = system_call4(by_machine(17, 67), descriptor, buffer + done, size - done, offset + done)
        if got <= 0:
            return ENDED
        done += got
    status = call4(load_i64(functions), load_i64(piece), buffer, size, stream)
    if status != 0:
        return status
    return call4(load_i64(functions + 8), event, stream, 0, 0)


@helper
def _blame(desk, status, piece):
    if compare_exchange(desk + PROBLEM, 0, 1) == 1:
        store_64(desk + PROBLEM + 8, status)
        for word in range(8, 32, 8):
            store_64(desk + PROBLEM + 8 + word, load_i64(piece + word))
        atomic_store(desk + PROBLEM, 2)


@export
def serve_pieces(desk, lanes, buffers, buffer_bytes, events, functions, stream):
    """Copy pieces of the first `lanes` lanes until the desk is over; then return how many it was.

    `buffers`: two pinned buffers, then room for a piece; `events`: one for each, recorded behind the last copy from it.
    `functions`: addresses of cuMemcpyHtoDAsync, cuEventRecord, cuEventSynchronize."""
    piece, turn, served, looks = buffers + 2 * buffer_bytes, 0, 0, 0
    while True:
        offers = atomic_load(desk)
        if _take(desk, lanes, piece) == 1:
            looks = 0
            if atomic_load(desk + PROBLEM) == 0:
                status = _copy(piece, buffers + turn * buffer_bytes, load_i64(events + turn * EVENT_BYTES), functions, stream)
                if status != 0:
                    _blame(desk, status, piece)
            turn = 1 - turn
            served += 1
            atomic_add(load_i64(piece + 32), -1)
        elif atomic_load(desk + OVER) != 0:
            return served
        elif looks < SPINS:
            looks += 1
            pause()
        else:
            system_call4(by_machine(202, 98), desk, WAIT, offers & 0xFFFFFFFF, 0)
            looks = 0


@helper
def _nap(room):
    """Let other threads run; `room`: two words."""
    store_64(room, 0)
    store_64(room + 8, NAP)
    system_call(by_machine(35, 101), room, 0, 0)


@helper
def _wake(desk):
    atomic_add(desk, 1)
    return system_call(by_machine(202, 98), desk, WAKE, EVERYONE)


@export
def wake_pieces(desk):
    """Let every thread look again."""
    return _wake(desk)


@export
def offer_pieces(desk, lane, parts, count, base, wanted, number, buffer_bytes, counter, room):
    """Offer in a lane what `number` experts are made of, one expert after the other; returns how many pieces that is.

    `parts`: int64[count, 4]: descriptor, offset in the file and place behind `base` of the first expert, bytes of each. `wanted`:
    int64[number, 2]: an expert, its place on the device. No piece is larger than a buffer; those of a part are alike. `counter`
    rises by each piece. Waits where the lane is full; `room`: two words for that."""
    place = desk + COUNTS + lane * LANE_BYTES
    at = first = atomic_load(place)
    for i in range(number):
        expert, slot = load_i64(wanted + 16 * i), load_i64(wanted + 16 * i + 8)
        for k in range(count):
            part = parts + 32 * k
            descriptor, size = load_i64(part), load_i64(part + 24)
            offset, target = load_i64(part + 8) + expert * size, base + load_i64(part + 16) + slot * size
            pieces = (size + buffer_bytes - 1) // buffer_bytes
            each = (size + pieces - 1) // pieces + 511 & -512  # not beyond a buffer, which is a multiple of that
            done = 0
            while done < size:
                while at - atomic_load(place + TAKEN) >= CAPACITY:
                    _wake(desk)
                    _nap(room)
                row = desk + PIECES + (lane * CAPACITY + at % CAPACITY) * PIECE_BYTES
                store_64(row, target + done)
                store_64(row + 8, descriptor)
                store_64(row + 16, offset + done)
                store_64(row + 24, min(each, size - done))
                store_64(row + 32, counter)
                atomic_add(counter, 1)
                at += 1
                atomic_store(place, at)
                done += each
    _wake(desk)
    return at - first


@export
def withdraw_pieces(desk, lane, counter):
    """Take back the pieces of a lane that no thread has taken, all of them of one `counter`; returns how many."""
    place = desk + COUNTS + lane * LANE_BYTES
    while True:
        count, taken = atomic_load(place), atomic_load(place + TAKEN)
        if compare_exchange(place + TAKEN, taken, count) == 1:
            atomic_add(counter, taken - count)
            return count - taken


@export
def await_pieces(counter, room):
    """Wait until a counter of pieces is at 0: until all copies are queued, or given up because of a problem."""
    looks = 0
    while atomic_load(counter) > 0:
        if looks < SPINS:
            looks += 1
            pause()
        else:
            _nap(room)
    return 0
