"""The socket that clients connect to: an address and a port, or a path. Made before anything large is imported.

Refuses addresses that are taken or not ours, in one line. Called by main.
"""

import socket

from ..errors import InputOutputError
from ..worker.socket import Socket

WAITING = 512  # connections in the system's queue


class Listener:
    """A listening socket: `socket`, and `url` for people."""

    def __init__(self, options):
        self._file = None
        if options.uds:
            self._file = Socket(options.uds)
            self.socket = socket.fromfd(self._file.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
            self.url = f"unix:{options.uds}"
        else:
            self.socket, self.url = bound(options.host, options.port)
        self.socket.setblocking(False)

    def close(self):
        """Stop listening; a socket file is removed."""
        self.socket.close()
        if self._file:
            self._file.close()


def bound(host, port):
    """(a socket that listens, its URL)"""
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family, kind, protocol)  # with the protocol named, asyncio sends small pieces at once
    except (OSError, UnicodeError) as error:
        raise InputOutputError("cannot listen there", "an address of this machine", reason(error), where) from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(WAITING)
    except OSError as error:
        made.close()
        raise InputOutputError("cannot listen there", "a free address", reason(error), where, "take another --port") from None
    shown, port = made.getsockname()[:2]
    return made, f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def reason(error):
    """The words of an error of the system."""
    return getattr(error, "strerror", None) or str(error)
