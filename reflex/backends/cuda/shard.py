"""A model file as its bytes reach a device: open by itself, mapped shared, refused once it is another. See upload.py."""

import posix
from _ctypes import addressof
from posix import O_CLOEXEC, O_RDONLY
from posix import close as _close
from posix import fstat as _fstat
from posix import open as _open

from ... import native
from ...errors import ModelFileError
from ...gguf.header import guard
from ...native import UInt8, libc


class Shard:
    """A model file mapped shared. `start`: where the reader's own mapping begins, which tensor addresses refer to."""

    def __init__(self, header):
        self.path = header.path
        self.size = header.size
        self.start = header.mapping.address
        self.mapping = None
        self.descriptor = _open(header.path, O_RDONLY | O_CLOEXEC)
        status = _fstat(self.descriptor)
        if (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) != header.stamp:
            self.close()
            raise ModelFileError("the file was replaced or rewritten while it was open", where=header.path, remedy="run again")

    def map(self):
        if self.mapping is None:
            self.mapping = native.map_descriptor(self.descriptor, self.size, self.path, shared=True)
            guard(self.mapping, self.path)
        return self.mapping.address

    def file_system(self):
        """The number by which statfs tells file systems apart; 0 where it does not answer."""
        block = (UInt8 * 256)()
        failed = libc("fstatfs", 2)(self.descriptor, addressof(block)) & 0xFFFFFFFF
        return 0 if failed else native.view(addressof(block), 1, "q")[0] & 0xFFFFFFFF

    def cached(self, offset):
        """Whether the byte at `offset` can be read without waiting for a disk."""
        return cached(self.descriptor, min(offset, self.size - 1))

    def short(self, offset, size):
        """The error for a file that can be read to here only."""
        where = f"{self.path} offset {offset}"
        return ModelFileError("the file cannot be read to its end", f"{size} more bytes", "fewer", where)

    def close(self):
        if self.mapping is not None:
            self.mapping.free()
            self.mapping = None
        if self.descriptor >= 0:
            _close(self.descriptor)
            self.descriptor = -1


def cached(descriptor, offset):
    """Whether a byte of an open file can be read without waiting for a disk; True where the system cannot say."""
    try:
        return posix.preadv(descriptor, [bytearray(1)], offset, posix.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        return True


def ask_ahead(descriptor, offset, size):
    """Ask the system to read a part of a file from the disk unless it seems to be in memory."""
    if not all(cached(descriptor, offset + at) for at in (0, size // 2, size - 1)):
        try:
            posix.posix_fadvise(descriptor, offset, size, posix.POSIX_FADV_WILLNEED)
        except OSError:  # only slower
            return
