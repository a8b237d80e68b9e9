"""State files: what a model keeps of a text it has read, so that another process need not read it again.

`export_state` writes the memory of a session's tokens, `import_state` puts it back as far as a prompt begins alike. A file says
which tokens, of which model, tokenizer, adapters and cache it holds (identity.py), and every byte of it is under a checksum
(layout.py): whatever does not agree is refused with a StateError before a result could depend on it. The file is mapped, never
read by Python. Called by the API, the command line and the worker; imported where one of them is asked for a state.
"""

from .. import native
from ..backends.sections import BLOCK
from ..errors import ContextOverflowError, InvalidInputError
from ..threads import MOST, Rooms, together
from . import identity, layout

ROOM = 128 << 20  # bytes of blocks that are on their way to a file, at most; one block where it has more
KINDS = {"f32": False, "f16": True}  # how values are stored: whether as float16


class Imported:
    """What came of a state file: `tokens` in it, `reused` of them, and `notes` for the person."""

    __slots__ = ("ids", "notes", "reused", "tokens")

    def __init__(self, ids, reused, notes):
        self.ids = ids
        self.tokens = len(ids)
        self.reused = reused
        self.notes = notes


def export_state(session, ids, path, kind=None):
    """Write the state behind `ids` (computed here as far as the cache lacks it) to `path`, whole or not at all.

    `kind`: f32, or f16 for half the bytes; by default as the backend keeps it, which loses nothing."""
    from ..output_file import OutputFile

    if kind is not None and kind not in KINDS:
        raise InvalidInputError("a state has no such numbers", " or ".join(KINDS), repr(kind))
    session.settle(ids)
    session.landed()
    store = session.plan.store()
    if store.fixed:
        store.place = session.snapshots.behind(len(ids) - 1)
    half = store.half if kind is None else KINDS[kind]
    shape = layout.Shape(store, len(ids), half)
    prints, origin = identity.of(session.plan.file, session.plan.program, store), f"{session.backend} {store.origin}"
    library, head = native.library(), layout.head(native.library(), shape, ids, prints, origin)
    with OutputFile(path, shape.file_bytes, "the state") as out:
        out.write_at(0, head)
        digests = store.save(shape, out, len(head)) if store.fetches and half else _save(store, shape, out, len(head))
        out.write_at(len(head) + shape.starts[-1], layout.tail(library, digests))


def _save(store, shape, out, start):
    """Write all chunks to an OutputFile, from its byte `start` on; the digests of all their pieces."""
    library, digests = native.library(), [()] * len(shape.sizes)

    def write(number):
        room, size, used = rooms.take(), shape.sizes[number], shape.used(number)
        if number < shape.blocks:
            store.read(number * BLOCK, shape.stored(number), room.address, shape.half)
        else:
            store.read_fixed(room.address)
        native.view(room.address + used, size - used)[:] = bytes(size - used)
        digests[number] = [library.digest(room.address + at, count, piece) for piece, at, count in shape.pieces(number)]
        out.write_at(start + shape.starts[number], native.view(room.address, size))
        rooms.give(room)

    largest = max(shape.sizes, default=1)
    threads = max(1, min(MOST, ROOM // largest)) if store.parallel else 1
    with Rooms(largest, "a block of the state") as rooms:
        together(write, len(shape.sizes), "state file", threads)
    return [digest for chunk in digests for digest in chunk]


def import_state(session, path, ids=None, wait=True):
    """Put the state in the file `path` into the cache of `session`, as far as `ids` begin like it; an Imported.

    Without `ids` the whole text of the state becomes the session's timeline. StateError for a file of another model, or one that is
    damaged; nothing of it is used then. Without `wait` what it takes may still be read when this returns (on a GPU, which
    computes meanwhile): damage of them is then found before whatever is computed next has a result."""
    session.forget()
    with layout.open_state(path) as found:
        store = session.plan.store()
        shape = layout.Shape(store, found.tokens, found.half)
        found.check(shape, identity.of(session.plan.file, session.plan.program, store))
        if ids is None and found.tokens > session.context:
            limit, remedy = f"at most {session.context} tokens", "raise --ctx"
            raise ContextOverflowError("the state does not fit the context", limit, f"{found.tokens} tokens", path, remedy)
        reused = found.tokens if ids is None else found.common(ids)
        notes = found.differences(f"{session.backend} {store.origin}", store)
        if store.fixed and min(reused, session.context) < found.tokens - 1:  # it cannot be cut
            reused = 0
        if not reused:
            notes.append(f"nothing of the state could be used: the prompt does not begin with its {found.tokens} tokens")
        kept = found.ids()
        try:
            _take(store, shape, found, min(reused, session.context))
        except BaseException:
            session.forget()
            raise
    session.adopt(kept[:reused], found.tokens - 1 if store.fixed and reused else 0)
    if wait:
        session.landed()
    return Imported(kept, reused, notes)


def _take(store, shape, found, count):
    """Give the first `count` slots to the store. Every chunk is checked, also those that they do not need."""
    library, blocks = native.library(), (count + BLOCK - 1) // BLOCK
    needed, chunks = {*range(blocks), *([shape.blocks] if store.fixed and count else ())}, list(range(len(shape.sizes)))
    if store.fetches and found.half:
        taken = store.fetch(shape, found, count)  # checks what it takes
        needed, chunks = needed.difference(taken), [number for number in chunks if number not in taken]

    def write(number):
        if number == shape.blocks:
            store.write_fixed(found.chunk(shape, number))
        else:
            first, stored = number * BLOCK, shape.stored(number)
            store.write(first, min(stored, count - first), stored, found.chunk(shape, number), found.half)

    def check(i):
        found.verify(library, shape, chunks[i])
        if store.parallel and chunks[i] in needed:
            write(chunks[i])

    together(check, len(chunks), "state file")
    if not store.parallel:
        for number in sorted(needed):
            write(number)
