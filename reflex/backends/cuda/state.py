"""The memory of the cuda backend as sections of a state file (../sections.py). Imported where one is read or written.

A whole block of float16 slots is, byte for byte, a page of the cache, and goes there from the mapped file by the upload's ways
(upload.py) while the caller goes on. Other blocks are rearranged in a buffer of the host.
"""

from ... import native
from ..sections import BLOCK, fixed_sections, rearrange, slot_bytes, slot_sections
from .memory import SLOTS
from .upload import Upload

HALF = 2  # bytes of a value in the cache


class Store:
    """See ../sections.py. `source`: the mapped file that blocks lie in, with what a gguf Header says of one; None to read only."""

    half = True
    place = 0
    parallel = False

    def __init__(self, plan, source=None):
        self.plan = plan
        self.sections, self.fixed = slot_sections(plan.program), fixed_sections(plan.program)
        self._places = []  # of each section: offset in a page
        for (heads, key_dim, value_dim), at in zip(plan.program.caches, plan.memory.layer_places, strict=True):
            self._places += [at, at + HALF * SLOTS * heads * key_dim] if value_dim else [at]
        self.origin = f"{plan.image.target}, weights {plan.gpu.weights}"
        self._source = source
        self._upload = None  # made for the first whole block
        self._host = None  # a page, on the host
        self._quiet = False  # whether what was queued before has ended

    def read(self, first, count, address, half):
        """Slots [first, first + count) to `address`."""
        self.plan.open()
        device, host = self.plan.device, self._page()
        device.copy_out(host, self.plan.page_addresses[first // SLOTS], self.plan.memory.page_bytes)
        device.synchronize()
        for at, place, section in self._parts(count, address, half):
            dimensions = self._dimensions(section, count, count, half)
            swapped = [(n, there, here) for n, here, there in dimensions]
            rearrange(self.plan.library, host + place, at, HALF, HALF if half else 4, *swapped)

    def write(self, first, count, stored, address, half):
        """The first `count` of `stored` slots at `address` to the slots from `first` on."""
        plan = self.plan
        plan.open()
        if not self._quiet:  # the copies go through another stream than what may still write there
            plan.device.synchronize()
            self._quiet = True
        plan.grow(first + count)
        page = plan.page_addresses[first // SLOTS]
        if half and stored == BLOCK and self._is_page():
            if self._upload is None:
                self._upload = Upload([self._source])
            self._upload.add(page, address, slot_bytes(self.sections, half) * stored)
            return
        host = self._page()
        for at, place, section in self._parts(stored, address, half):
            dimensions = self._dimensions(section, count, stored, half)
            rearrange(plan.library, at, host + place, HALF if half else 4, HALF, *dimensions)
        plan.device.copy_in(page, host, plan.memory.page_bytes)  # pageable: read when the call returns

    def read_fixed(self, address):
        """Fixed sections to `address`."""
        size = slot_bytes(self.fixed, False)
        if self.place < 0:
            native.view(address, size)[:] = bytes(size)
            return
        self.plan.open()
        self.plan.device.copy_out(address, self.plan.place_addresses[self.place], size)
        self.plan.device.synchronize()

    def write_fixed(self, address):
        """Fixed sections at `address` to their place."""
        from .recurrent import reach

        self.plan.open()
        reach(self.plan, self.place)
        self.plan.device.copy_in(self.plan.place_addresses[self.place], address, slot_bytes(self.fixed, False))

    def finish(self):
        """Let the device wait for the blocks on their way; nothing of the file is needed afterwards."""
        upload = self._upload
        if upload:
            self.plan.beside.append(upload)
            upload.begin(self.plan.device, 0)
            upload.wait()
        if self._host:
            self._host.free()
            self._host = None

    def _page(self):
        if self._host is None:
            self._host = native.alloc(self.plan.memory.page_bytes, "a page of the cache")
        return self._host.address

    def _is_page(self):
        """Whether a block of float16 has its sections where a page has them."""
        starts = [at for at, _, _ in self._parts(SLOTS, 0, True)]
        return BLOCK == SLOTS and starts == self._places

    def _parts(self, stored, address, half):
        """(address in the file, offset in a page, section) of each section of a block of `stored` slots."""
        for section, place in zip(self.sections, self._places, strict=True):
            yield address, place, section
            address += stored * slot_bytes((section,), half)

    @staticmethod
    def _dimensions(section, count, stored, half):
        """How `count` of `stored` slots lie in the file and in a page."""
        value, width = HALF if half else 4, section.width
        return (section.heads, stored * width * value, SLOTS * width * HALF), (count * width, value, HALF)
