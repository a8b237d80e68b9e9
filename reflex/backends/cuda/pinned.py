"""Host memory for copies that pass without the driver's own buffers: huge pages, touched before there is a device, then pinned.

The driver takes twelve times as long to make as much pinned memory as to pin such pages (docs/LOG.md). Used by fetch.py, ring.py.
"""

from ... import native
from ...native import PAGE, libc

HUGE_PAGE, ADVISE_HUGE, POPULATE_WRITE = 2 << 20, 14, 23  # bytes; MADV_*


class Pages:
    """At least `size` bytes at `address`. Needs no device until `pin`."""

    def __init__(self, size, what):
        self.size = size + PAGE - 1 & -PAGE
        self._mapping = native.alloc(self.size + HUGE_PAGE, what)
        self.address = self._mapping.address + HUGE_PAGE - 1 & -HUGE_PAGE
        self._device = None  # for which they are pinned
        for advice in (ADVISE_HUGE, POPULATE_WRITE):  # a system without huge pages does as well, later
            libc("madvise", 3)(self.address, self.size, advice)

    def pin(self, device):
        device.pin(self.address, self.size)
        self._device = device

    def free(self):
        """What was queued of them must be over."""
        if self._device is not None:
            self._device.unpin(self.address)
            self._device = None
        self._mapping.free()
