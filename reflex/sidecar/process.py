"""The worker as a child process: started before anything large is imported, found to have ended, ended.

It has a process group of its own, so that Ctrl-C at a terminal reaches the sidecar alone, which then ends it in order. When the
sidecar is killed, the worker's stdin ends, and with it the worker. Called by main and engine.
"""

import signal
from os import POSIX_SPAWN_DUP2, WNOHANG, close, kill, path, pipe, posix_spawn, set_blocking, waitpid, waitstatus_to_exitcode

from .. import settings
from ..errors import InputOutputError

PROGRAM = "reflex"


def program(own, interpreter):
    """The path of `reflex`: beside the program `own`, else beside the Python `interpreter`."""
    folders = [path.dirname(path.realpath(own)), path.dirname(interpreter)]
    for folder in folders:
        if path.exists(f"{folder}/{PROGRAM}"):
            return f"{folder}/{PROGRAM}"
    raise InputOutputError("there is no program reflex", "beside reflex-sidecar", "none", folders[0], "name it with --worker")


class Process:
    """A worker that was started with the words of a command. `pid`, `source` and `sink`: our ends of its pipes, which do not
    block. `code`: its exit code once it was found to have ended."""

    def __init__(self, words):
        source, out = pipe()
        inward, sink = pipe()
        try:
            moves = [(POSIX_SPAWN_DUP2, inward, 0), (POSIX_SPAWN_DUP2, out, 1)]
            self.pid = posix_spawn(words[0], words, settings.worker_environment(), file_actions=moves, setpgroup=0)
        except OSError as error:
            close(source)
            close(sink)
            raise InputOutputError("cannot start the worker", found=error.strerror, where=words[0]) from None
        finally:
            close(inward)
            close(out)
        set_blocking(source, False)
        set_blocking(sink, False)
        self.source, self.sink = source, sink
        self.code = None

    def ended(self):
        """Whether it has ended."""
        if self.code is None:
            found, status = waitpid(self.pid, WNOHANG)
            if found:
                self.code = waitstatus_to_exitcode(status)
        return self.code is not None

    def signal(self, number):
        """Send a signal, unless it has ended."""
        if not self.ended():
            kill(self.pid, number)

    def kill(self):
        """End it where it stands."""
        self.signal(signal.SIGKILL)

    def hang_up(self):
        """Close its stdin: it ends when it has answered."""
        if self.sink is not None:
            close(self.sink)
            self.sink = None

    def close(self):
        """Close both pipes."""
        self.hang_up()
        if self.source is not None:
            close(self.source)
            self.source = None
