"""The socket file of a worker: made for its user alone, taken over from a dead one, never from a living one, removed at the end.

Clients wait in the system's queue until it is their turn. Refuses: paths that are too long, taken by a living worker, or by
something that is no socket.
"""

import _socket
from fcntl import LOCK_EX, LOCK_NB, flock
from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, lstat, umask, unlink
from posix import close as _close
from posix import open as _open
from stat import S_ISSOCK
from time import monotonic, sleep

from ..errors import InputOutputError, InvalidInputError, StateError

LONGEST = 107  # bytes of a path: 108 of sockaddr_un with the 0 behind it
PRIVATE = 0o177  # umask: what is made is read and written by its owner alone
WAITING = 128  # clients in the queue
PATIENCE = 5.0  # seconds to wait for another worker that looks at the same folder


class Socket:
    """A listening socket at `path`. `fileno()` for poll."""

    def __init__(self, path):
        self.path = path
        size = len(path.encode("utf-8", "surrogateescape"))
        if not 1 <= size <= LONGEST:
            remedy = "name a shorter path, or one relative to the working folder"
            raise InvalidInputError("the path of the socket has a wrong length", f"1 to {LONGEST} bytes", size, path, remedy)
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
        try:
            with Folder(path):
                make_room(path)
                before = umask(PRIVATE)
                try:
                    self._listener.bind(path)
                finally:
                    umask(before)
                self._listener.listen(WAITING)
                self._own = identity(path)
        except OSError as error:
            self._listener.close()
            raise refused(path, error) from None
        except BaseException:
            self._listener.close()
            raise

    def fileno(self):
        return self._listener.fileno()

    def accept(self):
        """The descriptor of the next client, which does not block; None where it has left again."""
        try:
            descriptor, _ = self._listener._accept()  # type: ignore[attr-defined]  # as socket.socket.accept does
        except OSError:
            return None
        from posix import set_blocking

        set_blocking(descriptor, False)
        return descriptor

    def close(self):
        """Stop listening, and remove the file unless it is another's by now."""
        try:
            if identity(self.path) == self._own:
                unlink(self.path)
        except OSError:
            pass
        self._listener.close()


class Folder:
    """A lock on the folder of a path while its socket is looked at and made, so that two workers cannot both take it over."""

    def __init__(self, path):
        self._path = path.rpartition("/")[0] or ("/" if path[:1] == "/" else ".")

    def __enter__(self):
        self._descriptor = _open(self._path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        until = monotonic() + PATIENCE
        while True:
            try:
                return flock(self._descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                if monotonic() > until:
                    self.__exit__()
                    raise StateError("another process holds a lock on the socket's folder", "none", where=self._path) from None
                sleep(0.01)

    def __exit__(self, *_):
        _close(self._descriptor)


def identity(path):
    """What tells a file from another: (device, inode)."""
    found = lstat(path)
    return found.st_dev, found.st_ino


def make_room(path):
    """Remove a socket that nobody listens at any more; refuses to touch anything else."""
    try:
        found = lstat(path)
    except FileNotFoundError:
        return
    if not S_ISSOCK(found.st_mode):
        raise InvalidInputError("this is no socket", "a free path, or the socket of a worker that ended", "a file", path)
    trial = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
    try:
        trial.connect(path)
    except ConnectionRefusedError:
        unlink(path)
        return
    except BlockingIOError:  # somebody listens, and its queue is full
        pass
    finally:
        trial.close()
    raise StateError("somebody listens at this socket", "a free path", "another worker", path, "stop it, or name another path")


def refused(path, error):
    """The error for a socket that cannot be made."""
    return InputOutputError("cannot make the socket", found=error.strerror or str(error), where=path)
