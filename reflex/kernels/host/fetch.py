"""Pieces of files into device memory, through pinned buffers: one call per thread for any number of pieces.

Each thread claims one piece after another, reads it into one of its two buffers and queues the copy, while the copy from the
other is under way. Called by reflex/backends/cuda/fetch.py.
"""

from ..export import export
from ..foreign import call4
from ..intrinsics import atomic_add, call7, load_i64

PIECE_BYTES = 32
EVENT_BYTES = 8


@export
def fetch_pieces(pieces, count, claimed, buffer, buffer_bytes, events, functions, stream):
    """Copy pieces that no other thread has claimed; -1, or piece << 32 | status of the first that failed.

    `pieces`: int64[count, 4]: device address, file descriptor, offset, bytes (at most `buffer_bytes`). `claimed`: an int64 that
    all threads count up. `buffer`: two pinned buffers; `events`: one for each, recorded behind the last copy from it.
    `functions`: addresses of libc's syscall, its number of pread, then cuMemcpyHtoDAsync, cuEventRecord, cuEventSynchronize. A file
    that ends early is status 2^31.
    """
    turn = 0
    while True:
        i = atomic_add(claimed, 1)
        if i >= count:
            return -1
        piece = pieces + i * PIECE_BYTES
        target, descriptor, offset, size = load_i64(piece), load_i64(piece + 8), load_i64(piece + 16), load_i64(piece + 24)
        place, event = buffer + turn * buffer_bytes, load_i64(events + turn * EVENT_BYTES)
        status = call4(load_i64(functions + 32), event, 0, 0, 0)
        done = 0
        while done < size and status == 0:
            number = load_i64(functions + 8)
            got = call7(load_i64(functions), number, descriptor, place + done, size - done, offset + done, 0, 0)
            if got <= 0:
                status = 1 << 31
            done += got
        if status == 0:
            status = call4(load_i64(functions + 16), target, place, size, stream)
        if status == 0:
            status = call4(load_i64(functions + 24), event, stream, 0, 0)
        if status != 0:
            return i << 32 | status
        turn = 1 - turn
