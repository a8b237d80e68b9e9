"""State files: what a model keeps of a text it has read, so that another process need not read it again.

`export_state` writes the memory of a session's tokens, `import_state` puts it back as far as a prompt begins alike. A file says
which tokens, of which model, tokenizer, adapters and cache it holds (identity.py), and every byte of it is under a checksum
(layout.py): whatever does not agree is refused with a StateError before a result could depend on it. The file is mapped, never
read by Python. Called by the API, the command line and the worker; imported where one of them is asked for a state.
"""

from .. import native
from ..backends.sections import BLOCK
from ..errors import ContextOverflowError, InvalidInputError
from . import identity, layout
from .threads import together

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
    store = session.plan.store()
    if store.fixed:
        store.place = session.snapshots.behind(len(ids) - 1)
    half = store.half if kind is None else KINDS[kind]
    shape = layout.Shape(store, len(ids), half)
    prints, origin = identity.of(session.plan.file, session.plan.program, store), f"{session.backend} {store.origin}"
    library = native.library()
    room = native.alloc(max(shape.sizes, default=1), "a block of the state")
    try:
        with OutputFile(path, shape.file_bytes, "the state") as out:
            out.write(layout.head(library, shape, ids, prints, origin))
            digests = []
            for number, size in enumerate(shape.sizes):
                if number < shape.blocks:
                    first = number * BLOCK
                    store.read(first, min(BLOCK, len(ids) - first), room.address, half)
                else:
                    store.read_fixed(room.address)
                used = shape.used(number)
                native.view(room.address + used, size - used)[:] = bytes(size - used)
                digests.append(library.digest(room.address, size, number))
                out.write(native.view(room.address, size))
            out.write(layout.tail(library, digests))
    finally:
        room.free()


def import_state(session, path, ids=None):
    """Put the state in the file `path` into the cache of `session`, as far as `ids` begin like it; an Imported.

    Without `ids` the whole text of the state becomes the session's timeline. StateError for a file of another model, or one that is
    damaged; nothing of it is used then."""
    session.forget()
    with layout.open_state(path) as found:
        store = session.plan.store(found)
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
        _take(store, shape, found, min(reused, session.context))
        kept = found.ids()
    session.adopt(kept[:reused], found.tokens - 1 if store.fixed and reused else 0)
    return Imported(kept, reused, notes)


def _take(store, shape, found, count):
    """Check every chunk of the file and give the first `count` slots to the store."""
    library = native.library()
    needed = (count + BLOCK - 1) // BLOCK

    def write(number):
        if number < needed:
            first = number * BLOCK
            stored = min(BLOCK, shape.tokens - first)
            store.write(first, min(stored, count - first), stored, found.chunk(shape, number), found.half)
        elif number == shape.blocks and count:
            store.write_fixed(found.chunk(shape, number))

    def check(number):
        found.verify(library, shape, number)
        if store.parallel:
            write(number)

    def meanwhile():
        if not store.parallel:
            for number in range(len(shape.sizes)):
                write(number)
            store.finish()

    together(check, len(shape.sizes), "state file", meanwhile)
