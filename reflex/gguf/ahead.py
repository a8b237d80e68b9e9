"""Maps the weights of an open file on a thread of its own while the main thread prepares to compute: 5 ms of 100 MB.

Worth it only where another core is idle. Started by open.py; the file ends it before it unmaps anything.
"""

from _thread import allocate_lock

from .. import native
from ..errors import OutOfMemoryError

LARGE = 8  # tensors of more than the LARGE-th part come last: tables of which a prompt may read a few rows


class Ahead:
    """A thread that touches the pages of `file`; `stop` lets it end, `close` waits until it has."""

    def __init__(self, file):
        self.touch = native.library().touch
        ranges = _ranges(file)
        self.block = native.alloc(16 * len(ranges) + 8, "ranges")
        words = native.view(self.block.address, 2 * len(ranges) + 1, "q")
        for i, (start, size) in enumerate(ranges):
            words[2 * i + 1], words[2 * i + 2] = start, size
        self.count = len(ranges)
        self.done = allocate_lock()
        self.done.acquire()
        try:
            native.start_thread(self._run, (), "reading ahead", self.done)
        except OutOfMemoryError:
            return  # nothing is lost but time

    def _run(self):
        native.watch_thread()
        self.touch(self.block.address + 8, self.count, self.block.address)

    def stop(self):
        native.view(self.block.address, 1, "q")[0] = 1

    def close(self):
        self.stop()
        self.done.acquire()
        self.block.free()


def _ranges(file):
    """[(address, bytes)] of all tensors, the large ones last."""
    found, large = [], []
    for shard in file.shards:
        start = shard.mapping.address + shard.data_start
        limit = (shard.data_end - shard.data_start) // LARGE
        for tensor in sorted((t for t in shard.tensors.values() if t.nbytes > limit), key=lambda t: t.address):
            found.append((start, tensor.address - start))
            start = tensor.address + tensor.nbytes
            large.append((tensor.address, tensor.nbytes))
        found.append((start, shard.mapping.address + shard.data_end - start))
    return found + large
