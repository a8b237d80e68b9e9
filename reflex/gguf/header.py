"""One GGUF file mapped and walked: `open_header(path)` gives its keys as records and its tensors with checked extents.

Owns the mapping and everything that is decided per file: magic, version, counts, alignment, where tensor data lies.
Refuses a file whose tensors do not lie inside it, aligned and apart. Called by reader.py, once per shard.
"""

from posix import O_CLOEXEC, O_NONBLOCK, O_RDONLY
from posix import close as _close
from posix import fstat as _fstat
from posix import open as _open
from posix import stat as _stat

from .. import native
from ..errors import ModelFileError
from .keys import Metadata
from .layout import MAGIC, RECORD_BYTES, RESULTS_BYTES, VERSIONS
from .limits import (
    ALIGNMENT_DEFAULT,
    ALIGNMENT_MAX,
    ALIGNMENT_MIN,
    HEADER_BYTES,
    KEY_MIN_BYTES,
    KEYS,
    TENSOR_MIN_BYTES,
    TENSORS,
)


class Tensor:
    """A named block of numbers in the mapping."""

    __slots__ = ("address", "elements", "name", "nbytes", "shape", "type")

    def __init__(self, name, type, shape, address, nbytes, elements):
        self.name = name
        self.type = type  # ggml type id
        self.shape = shape  # GGUF order: fastest dimension first
        self.address = address
        self.nbytes = nbytes
        self.elements = elements

    def __repr__(self):
        return f"Tensor({self.name!r}, type {self.type}, shape {self.shape}, {self.nbytes} bytes)"


class Header:
    """One mapped file: version, keys, tensors, and where its data begins and ends. `close()` unmaps it."""

    __slots__ = ("alignment", "data_end", "data_start", "mapping", "metadata", "path", "size", "stamp", "tensors", "version")

    def __init__(self, path, mapping, size, stamp):
        self.path = path
        self.mapping = mapping
        self.size = size
        self.stamp = stamp  # (device, inode, size, modification time in ns) when opened
        self.metadata = None
        self.tensors = {}

    def is_changed(self):
        """Whether the path now holds another file, or this one was resized or rewritten."""
        try:
            return _stamp(_stat(self.path)) != self.stamp
        except OSError:
            return True

    def is_rewritten(self):
        """Whether the mapped file itself was resized or written to; one that was replaced by another stays what it was."""
        try:
            now = _stamp(_stat(self.path))
        except OSError:
            return False
        return now != self.stamp and now[:2] == self.stamp[:2]

    def close(self):
        if self.metadata is not None:
            self.metadata.release()
        self.tensors = {}
        self.mapping.free()


class LostPages:
    """What is said where a page is read that its file has lost, and the process ended; see kernels/host/lost_page.py.

    Only for a process that is ours alone, which says so in native.lost_words."""

    SIZE, TEXTS, SIGBUS, FLAGS = 1 << 20, 1 << 16, 7, 4 | 0x08000000  # SA_SIGINFO | SA_ONSTACK

    def __init__(self):
        self.memory = native.alloc(self.SIZE, "signal stack")
        self.free = self.TEXTS  # where the next text lies in the memory
        head = native.view(self.memory.address, 32, "q")
        head[2], head[4] = self.memory.address, self.SIZE  # stack_t
        head[8] = native.library().address("lost_page")  # struct sigaction: the handler, a mask of 128 bytes, flags
        head[25] = self.FLAGS
        native.libc("sigaction", 3)(self.SIGBUS, self.memory.address + 64, 0)

    def add(self, mapping, texts):
        """A file that is mapped, and what to say: (bytes for stderr, bytes for stdout)."""
        head = native.view(self.memory.address, self.TEXTS // 8, "q")
        count = head[0]
        at = 32 + 6 * count
        if at + 6 > len(head) or self.free + len(texts[0]) + len(texts[1]) > self.SIZE // 2:
            return
        head[at], head[at + 1] = mapping.address, mapping.address + mapping.size
        for place, text in zip((at + 2, at + 4), texts, strict=True):
            head[place], head[place + 1] = self.memory.address + self.free, len(text)
            native.view(head[place], len(text))[:] = text
            self.free += len(text)
        head[0] = count + 1

    def watch(self):
        """For the calling thread: signal stacks belong to threads. All may share one, since none comes back from it."""
        native.libc("sigaltstack", 2)(self.memory.address + 16, 0)


def guard(mapping, path):
    """Have it said where the mapped file loses a page that this thread reads, if the process is ours to end."""
    for words in native.lost_words:
        if not native.lost_pages:
            native.lost_pages.append(LostPages())
        native.lost_pages[0].add(mapping, words(path))
        native.watch_thread()


def _stamp(status):
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _map(path):
    """Map a regular, non-empty file whole; a Header without contents."""
    try:
        descriptor = _open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)  # a FIFO must not block here
    except OSError as error:
        raise ModelFileError("cannot open the model file", found=error.strerror, where=path) from None
    except ValueError:
        raise ModelFileError("cannot open the model file", found="a zero byte in its name", where=repr(path)) from None
    try:
        status = _fstat(descriptor)
        if status.st_mode & 0o170000 != 0o100000:
            raise ModelFileError("the model is not a regular file", where=path, remedy="give the path of a .gguf file")
        if status.st_size < 24:
            raise ModelFileError("truncated: need 24 bytes for a header", found=f"{status.st_size} bytes", where=path)
        mapping = native.map_descriptor(descriptor, status.st_size, path)
        guard(mapping, path)
    finally:
        _close(descriptor)
    return Header(path, mapping, status.st_size, _stamp(status))


def _check_count(header, count, what, most, each, room, offset):
    where = f"{header.path} offset {offset}"
    if count > most:
        raise ModelFileError(f"impossible {what} count", f"at most {most}", count, where)
    if count * each > room:
        message = f"truncated: {count} {what}s need at least {count * each} bytes of header, have {room}"
        raise ModelFileError(message, where=where, remedy="download or convert the model again")


def _check_start(header, start):
    """The first 24 bytes: sets the version; returns the counts of keys and tensors, both possible for this file's size."""
    if start[:4] != MAGIC or int.from_bytes(start[4:8], "little") not in VERSIONS:
        from .faults import foreign

        raise foreign(header.path, start)
    header.version = int.from_bytes(start[4:8], "little")
    tensors, keys = int.from_bytes(start[8:16], "little"), int.from_bytes(start[16:24], "little")
    room = min(header.size, HEADER_BYTES) - 24
    _check_count(header, tensors, "tensor", TENSORS, TENSOR_MIN_BYTES, room, 8)
    _check_count(header, keys, "key", KEYS, KEY_MIN_BYTES, room, 16)
    return keys, tensors


def _walk(header, keys, tensors):
    """Run the native walk; returns (offset after the header, flat list of record fields)."""
    size = min(header.size, HEADER_BYTES)
    library = native.library()
    out = native.alloc(RESULTS_BYTES + RECORD_BYTES * (keys + tensors), "header records")
    try:
        sizes = library.address("gguf_block_sizes")
        code = library.gguf_scan(header.mapping.address, size, keys, tensors, sizes, out.address)
        results = native.view(out.address, RESULTS_BYTES // 8, "q").tolist()
        if code < 0:
            from .faults import explain

            raise explain(header, code, results, out.address, keys)
        return results[0], native.view(out.address + RESULTS_BYTES, 8 * (keys + tensors), "q").tolist()
    finally:
        out.free()


def _not_text(header, data, offset, what):
    from .faults import shown

    return ModelFileError(f"{what} is not UTF-8", found=shown(data), where=f"{header.path} offset {offset}")


def _twice(header, what, name, offset):
    return ModelFileError(f"{what} {name!a} occurs twice", where=f"{header.path} offset {offset}", remedy="convert the model again")


def _read_keys(header, view, records, count):
    entries = {}
    for i in range(0, 8 * count, 8):
        at, length, kind, start, items, element, nbytes, _ = records[i : i + 8]
        data = view[at : at + length]
        try:
            name = str(data, "utf-8")
        except UnicodeDecodeError:
            raise _not_text(header, data, at, "key") from None
        if name in entries:
            raise _twice(header, "key", name, at - 8)
        entries[name] = (kind, start, items, element, nbytes)
    header.metadata = Metadata(header.path, view, header.mapping.address, entries)


def _read_alignment(header):
    alignment = header.metadata.u("general.alignment", ALIGNMENT_DEFAULT)
    if not ALIGNMENT_MIN <= alignment <= ALIGNMENT_MAX or alignment & (alignment - 1):
        raise ModelFileError(
            "bad alignment",
            expected=f"a power of two from {ALIGNMENT_MIN} to {ALIGNMENT_MAX}",
            found=alignment,
            where=f"{header.path} key general.alignment",
        )
    return alignment


def _read_tensors(header, view, records, first):
    """Fill header.tensors. Extents are compared in one pass; anything but the usual dense order is looked at closely."""
    base = header.mapping.address + header.data_start
    room = header.size - header.data_start
    mask = header.alignment - 1
    tensors = header.tensors
    shapes = {}  # bytes of the dimensions -> tuple; a model has few
    start = records[first] if len(records) > first else len(view)
    text = bytes(view[start:])  # the tensor records: slices of bytes cost half of a view's
    end = 0
    dense = True
    for i in range(first, len(records), 8):
        at, length, kind, dims, elements, nbytes, offset, _ = records[i : i + 8]
        data = text[at - start : at - start + length]
        try:
            name = str(data, "utf-8")
        except UnicodeDecodeError:
            raise _not_text(header, data, at, "tensor name") from None
        if name in tensors:
            raise _twice(header, "tensor", name, at - 8)
        key = text[dims - start : dims - start + 8 * (kind >> 32)]
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = tuple(memoryview(key).cast("Q"))
        tensors[name] = Tensor(name, kind & 0xFFFFFFFF, shape, base + offset, nbytes, elements)
        if offset & mask or offset < end:
            dense = False
        if nbytes:
            end = offset + nbytes
    if not dense or end > room:
        from .faults import check_extents

        end = check_extents(header)
    header.data_end = header.data_start + end


def parse(header):
    """Fill a Header that has its mapping: keys, alignment, tensors. ModelFileError for anything wrong with the bytes."""
    keys, tensors = _check_start(header, native.bytes_at(header.mapping.address, 24))
    end, records = _walk(header, keys, tensors)
    view = native.view(header.mapping.address, end)
    _read_keys(header, view, records, keys)
    header.alignment = _read_alignment(header)
    header.data_start = (end + header.alignment - 1) & -header.alignment
    _read_tensors(header, view, records, 8 * keys)


def open_header(path):
    """Map and walk one GGUF file; a Header."""
    header = _map(path)
    try:
        parse(header)
    except BaseException:
        header.close()
        raise
    return header
