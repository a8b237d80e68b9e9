"""A file that appears whole or not at all: written beside its place, then moved there.

Refuses a place that is one of the inputs. Whatever goes wrong, nothing is left of it.
"""

import contextlib
import errno
import os

from . import native
from .errors import InputOutputError, InvalidInputError

BEGIN_WRITING = 2  # SYNC_FILE_RANGE_WRITE
CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # some file systems


def refuse_inputs(path, inputs):
    """InvalidInputError if `path` is one of the files that are read."""
    for source in inputs:
        try:
            same = os.path.samefile(path, source)
        except OSError:
            continue
        if same:
            remedy = "name another file and move it when it is done"
            raise InvalidInputError("the output is the input", "another path", path, remedy=remedy)


def check_place(path, inputs):
    """Refuse before long work what could not be written after it: one of the files that are read, or a place without a folder, or
    that must not be written to."""
    refuse_inputs(path, inputs)
    trial = OutputFile(path, 0)
    trial.__enter__()
    trial.discard()


def _is_replaceable(path):
    return not os.path.lexists(path) or os.path.isfile(path)


def write(path, data, what):
    """Write bytes to `path`, whole or not at all; what is no regular file (a pipe, /dev/stdout) is written to as it is.
    InputOutputError calls the file `what`."""
    path = os.fspath(path)
    if _is_replaceable(os.path.realpath(path)):
        with OutputFile(path, len(data), what) as file:
            file.write(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise InputOutputError(f"cannot write {what}", found=error.strerror, where=path) from None


class OutputFile:
    """`with OutputFile(path, size) as out: out.write(...)`. `size`: bytes of the whole file, reserved at once, so that a full disk
    is found before the work."""

    def __init__(self, path, size, what="the file"):
        self.path = path
        self.size = size
        self.what = what
        self._place = os.path.realpath(path)  # a link stays one
        folder, name = os.path.split(self._place)
        self._folder, self._beside = folder, os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
        self._descriptor = -1

    @property
    def descriptor(self):
        """For whoever writes by itself at places below `size`."""
        return self._descriptor

    def failure(self, number):
        """The error for such writing that ended in an error of the system."""
        return self._error(OSError(number, os.strerror(number)))

    def _error(self, error):
        return InputOutputError(f"cannot write {self.what}", found=error.strerror, where=self.path, remedy="nothing was left of it")

    def __enter__(self):
        if not _is_replaceable(self._place):
            raise InvalidInputError("the output is not a regular file", "a path for a new file", "something else", self.path)
        try:
            self._descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            os.posix_fallocate(self._descriptor, 0, self.size)
        except OSError as error:
            if self._descriptor < 0 or error.errno not in CANNOT_RESERVE:
                self.discard()
                raise self._error(error) from None
        return self

    def write(self, data):
        """Append bytes, all of them."""
        self._all(data, lambda view, _: os.write(self._descriptor, view))

    def write_at(self, place, data):
        """Write bytes at a place, from any thread. The disk may begin with them at once."""
        size = self._all(data, lambda view, done: os.pwrite(self._descriptor, view, place + done))
        native.libc("sync_file_range", 4)(self._descriptor, place, size, BEGIN_WRITING)  # what fails here fails at the end too

    def _all(self, data, write):
        view, done = memoryview(data).cast("B"), 0
        try:
            while done < len(view):
                done += write(view[done:], done)
        except OSError as error:
            raise self._error(error) from None
        return done

    def discard(self):
        """Give up: nothing is left."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with contextlib.suppress(OSError):
                os.unlink(self._beside)

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.discard()
            return
        try:
            os.fsync(self._descriptor)
            os.replace(self._beside, self._place)
            os.close(self._descriptor)
            self._descriptor = -1
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(folder)
            os.close(folder)
        except OSError as error:
            self.discard()
            raise self._error(error) from None
