"""The bytes of a state file: a head with the tokens, one chunk for every block of slots, one of fixed sections, a tail of digests.

    head    words of 64 bits, little-endian: MAGIC, VERSION, bytes of the head, bytes of the file, tokens,
            bytes of a value, slots of a block, fingerprints (identity.NAMES), bytes of the origin; then the origin as text, the
            token ids (32 bits each), zeros; the digest of all this in the last word
    chunks  see backends/sections.py; each filled up with zeros to a multiple of PAGE
    tail    the digest of every piece of the chunks, numbered from 0 on, then the digest of those

A piece has PIECE bytes, the last of a chunk what is left: what a thread reads, checks and copies at once. Every byte is under one
of the digests (kernels/digest.py), and all sizes follow from the numbers in the head, so that a file that was cut, extended or
changed anywhere is refused. Owns opening and mapping; refuses other versions.
"""

from posix import O_CLOEXEC, O_NONBLOCK, O_RDONLY
from posix import close as _close
from posix import fstat as _fstat
from posix import open as _open

from .. import native
from ..backends.sections import BLOCK, slot_bytes
from ..errors import InputOutputError, StateError
from ..gguf.header import Header, guard
from . import identity

MAGIC = int.from_bytes(b"RFXSTATE", "little")
VERSION = 2
PAGE = 4096
PIECE = 1 << 19  # bytes under one digest
WORDS = 7 + len(identity.NAMES) + 1  # of the head before the origin
MOST_TOKENS, MOST_ORIGIN = 1 << 31, 1024
HEAD_SEED, TAIL_SEED = -1, -2
REMEDY = "export the state again"


def up(size):
    return (size + PAGE - 1) & -PAGE


class Shape:
    """How large everything is in a state of `tokens` tokens."""

    piece = PIECE

    def __init__(self, store, tokens, half):
        self.tokens = tokens
        self.half = half
        self.slot = slot_bytes(store.sections, half)
        self.fixed = slot_bytes(store.fixed, False)
        self.blocks = (tokens + BLOCK - 1) // BLOCK
        counts = [min(BLOCK, tokens - BLOCK * i) for i in range(self.blocks)]
        self._used = [self.slot * count for count in counts] + ([self.fixed] if self.fixed else [])
        self.sizes = [up(size) for size in self._used]  # bytes of every chunk
        self.starts, self.firsts = [0], [0]  # of every chunk: bytes and pieces before it; then of all
        for size in self.sizes:
            self.starts.append(self.starts[-1] + size)
            self.firsts.append(self.firsts[-1] - (-size // PIECE))
        self.file_bytes = 0  # known with the head

    def stored(self, number):
        """Slots of a block."""
        return min(BLOCK, self.tokens - BLOCK * number)

    def used(self, number):
        """Bytes of a chunk before its zeros."""
        return self._used[number]

    def pieces(self, number):
        """(number, offset in the chunk, bytes) of each piece of a chunk."""
        size = self.sizes[number]
        for piece, at in enumerate(range(0, size, PIECE), self.firsts[number]):
            yield piece, at, min(PIECE, size - at)

    def place(self, head):
        """Bytes of a file whose head has `head` bytes."""
        return head + self.starts[-1] + 8 * (self.firsts[-1] + 1)


def head_bytes(tokens, origin):
    return up(8 * WORDS + origin + 4 * tokens + 8)


def head(library, shape, ids, prints, origin):
    """The bytes of a head."""
    text = origin.encode()[:MOST_ORIGIN]
    size = head_bytes(len(ids), len(text))
    shape.file_bytes = shape.place(size)
    words = (MAGIC, VERSION, size, shape.file_bytes, len(ids), 2 if shape.half else 4, BLOCK, *prints, len(text))
    data = bytearray(size)
    memoryview(data)[: 8 * WORDS].cast("q")[:] = memoryview((native.Int64 * WORDS)(*words)).cast("B").cast("q")
    data[8 * WORDS : 8 * WORDS + len(text)] = text
    start = 8 * WORDS + len(text)
    data[start : start + 4 * len(ids)] = b"".join([token.to_bytes(4, "little") for token in ids])
    block = (native.UInt8 * size).from_buffer(data)
    data[-8:] = word(library.digest(native.address_of(block), size - 8, HEAD_SEED))
    return bytes(data)


def tail(library, digests):
    """The bytes of a tail."""
    block = (native.Int64 * (len(digests) + 1))(*digests)
    block[len(digests)] = library.digest(native.address_of(block), 8 * len(digests), TAIL_SEED)
    return native.bytes_at(native.address_of(block), 8 * len(block))


def word(value):
    return (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")


def open_state(path):
    """Map a state file; a Found whose head is known to be whole. To be used by `with`."""
    try:
        descriptor = _open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or "a zero byte in its name"
        raise InputOutputError("cannot open the state file", found=found, where=path, remedy="--export-state makes one") from None
    try:
        status = _fstat(descriptor)
        if status.st_mode & 0o170000 != 0o100000:
            raise InputOutputError("the state is not a regular file", where=path, remedy="give the path of an exported state")
        if status.st_size < PAGE:
            raise StateError("this is no state file", f"at least {PAGE} bytes", f"{status.st_size} bytes", path, REMEDY)
        mapping = native.map_descriptor(descriptor, status.st_size, path)
    except BaseException:
        _close(descriptor)
        raise
    stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    found = Found(path, mapping, status.st_size, stamp, descriptor)
    try:
        guard(mapping, path)
        found.read()
    except BaseException:
        found.close()
        raise
    return found


class Found(Header):
    """A state file, mapped and open."""

    __slots__ = ("_start", "descriptor", "half", "head", "origin", "prints", "tokens")

    def __init__(self, path, mapping, size, stamp, descriptor=-1):
        super().__init__(path, mapping, size, stamp)
        self.descriptor = descriptor

    def close(self):
        super().close()
        if self.descriptor >= 0:
            _close(self.descriptor)
            self.descriptor = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def damaged(self, message, expected=None, found=None, place=""):
        return StateError(message, expected, found, f"{self.path}{place}", REMEDY)

    def read(self):
        """Take over the head, after its digest has been found right."""
        base = self.mapping.address
        words = native.view(base, WORDS, "q").tolist()
        if words[0] != MAGIC:
            raise self.damaged("this is no state file", "RFXSTATE", ascii(native.bytes_at(base, 8)))
        if words[1] != VERSION:
            raise self.damaged("the state file has another version", VERSION, words[1])
        self.head, size, self.tokens, value, block = words[2:7]
        if size != self.size:
            raise self.damaged("the state file has not its whole size", f"{size} bytes", f"{self.size} bytes")
        self.prints, origin = words[7:-1], words[-1]
        possible = 0 < self.tokens <= MOST_TOKENS and 0 <= origin <= MOST_ORIGIN
        if not possible or self.head != head_bytes(self.tokens, origin) or self.head > size:
            raise self.damaged("the head of the state file is damaged", "sizes that agree", "others")
        library = native.library()
        if library.digest(base, self.head - 8, HEAD_SEED) != native.view(base + self.head - 8, 1, "q")[0]:
            raise self.damaged("the head of the state file is damaged", "its own digest", "another")
        if value not in (2, 4) or block != BLOCK:
            expected, found = f"2 or 4 bytes, blocks of {BLOCK}", f"{value}, {block}"
            raise self.damaged("the state file has numbers of another kind", expected, found)
        self.half = value == 2
        self.origin = native.bytes_at(base + 8 * WORDS, origin).decode("utf-8", "replace")
        self._start = base + 8 * WORDS + origin

    def ids(self):
        """The tokens, a list."""
        return native.view(self._start, self.tokens, "I").tolist()

    def common(self, ids):
        """How many tokens `ids` begin with."""
        have, most = self.ids(), min(self.tokens, len(ids))
        if have[:most] == ids[:most]:
            return most
        return next(count for count in range(most) if have[count] != ids[count])

    def check(self, shape, prints):
        """Refuse a file of something else, or with a damaged tail. `prints`: the fingerprints of what is to use it."""
        for name, expected, found in zip(identity.NAMES, prints, self.prints, strict=True):
            if expected != found:
                message = f"the state belongs to {identity.OTHER[name]}"
                raise self.damaged(message, f"{name} {shown(expected)}", f"{name} {shown(found)}")
        expected = shape.place(self.head)
        if expected != self.size:
            raise self.damaged("the state file has not its whole size", f"{expected} bytes", f"{self.size} bytes")
        count, at = shape.firsts[-1], self.digests(shape)
        if native.library().digest(at, 8 * count, TAIL_SEED) != native.view(at, count + 1, "q")[count]:
            raise self.damaged("the state file is damaged at its end", "its own digest", "another")

    def digests(self, shape):
        """Address of the digests of all pieces."""
        return self.mapping.address + self.size - 8 * (shape.firsts[-1] + 1)

    def offset(self, shape, number):
        """Where a chunk begins in the file."""
        return self.head + shape.starts[number]

    def chunk(self, shape, number):
        """Address of a chunk."""
        return self.mapping.address + self.offset(shape, number)

    def verify(self, library, shape, number):
        """Refuse a damaged chunk."""
        start = self.chunk(shape, number)
        for piece, at, size in shape.pieces(number):
            found = library.digest(start + at, size, piece)
            expected = native.view(self.digests(shape) + 8 * piece, 1, "q")[0]
            if found != expected:
                raise self.unlike(self.offset(shape, number) + at, f"digest {shown(expected)}", shown(found))

    def unlike(self, offset, expected="its digest", found="another"):
        """The error for bytes at an offset that do not have their digest."""
        return self.damaged("the state file is damaged", expected, found, f" offset {offset}")

    def short(self, offset, size):
        """The error for a file that can be read to here only."""
        return self.damaged("the state file cannot be read to its end", f"{size} more bytes", "fewer", f" offset {offset}")

    def differences(self, origin, store):
        """Notes about what makes results differ in their last digits."""
        notes = []
        if self.origin != origin:
            notes.append(f"the state was computed by {self.origin}, this is {origin}: last digits of results may differ")
        if self.half and not store.half:
            notes.append("the state holds float16 where this backend keeps float32: last digits of results may differ")
        return notes


def shown(value):
    return f"{value & 0xFFFFFFFFFFFFFFFF:016x}"
