"""The memory of the cuda backend as sections of a state file (../sections.py). Imported where one is read or written.

Blocks of float16 slots are values as the cache has them, a whole one byte for byte a page, and so are fixed sections: in a file of
those, threads copy everything between the file and its places through pinned memory (ring.py), and check it or work out its digests
on the way. Blocks of float32 are rearranged in a buffer of the host.
"""

from ... import native
from ...native import Int64
from ..sections import BLOCK, fixed_sections, rearrange, slot_bytes, slot_sections
from . import driver
from .memory import SLOTS
from .shard import ask_ahead

HALF = 2  # bytes of a value in the cache


class Store:
    """See ../sections.py."""

    half = fetches = True
    place = 0
    parallel = False

    def __init__(self, plan):
        self.plan = plan
        self.sections, self.fixed = slot_sections(plan.program), fixed_sections(plan.program)
        self._places = []  # of each section: offset in a page
        for (heads, key_dim, value_dim), at in zip(plan.program.caches, plan.memory.layer_places, strict=True):
            self._places += [at, at + HALF * SLOTS * heads * key_dim] if value_dim else [at]
        starts = [at for at, _, _ in self._parts(SLOTS, 0, True)]
        self._is_page = BLOCK == SLOTS and starts == self._places  # whether a block has its sections where a page has them
        self.origin = f"{plan.image.target}, weights {plan.gpu.weights}"

    def read(self, first, count, address, half):
        """Slots [first, first + count) to `address`."""
        if not self.sections:
            return
        self.plan.open()
        self._land()
        device, page = self.plan.device, self.plan.page_addresses[first // SLOTS]
        host = native.alloc(self.plan.memory.page_bytes, "a page of the cache")
        device.copy_out(host.address, page, self.plan.memory.page_bytes)
        device.synchronize()
        for at, place, section in self._parts(count, address, half):
            dimensions = self._dimensions(section, count, count, half)
            swapped = [(n, there, here) for n, here, there in dimensions]
            rearrange(self.plan.library, host.address + place, at, HALF, HALF if half else 4, *swapped)
        host.free()

    def write(self, first, count, stored, address, half):
        """The first `count` of `stored` slots at `address` to the slots from `first` on."""
        plan = self.plan
        plan.open()
        self._land()
        plan.grow(first + count)
        host = native.alloc(plan.memory.page_bytes, "a page of the cache")
        for at, place, section in self._parts(stored, address, half):
            dimensions = self._dimensions(section, count, stored, half)
            rearrange(plan.library, at, host.address + place, HALF if half else 4, HALF, *dimensions)
        plan.device.copy_in(plan.page_addresses[first // SLOTS], host.address, plan.memory.page_bytes)  # pageable: read on return
        host.free()

    def fetch(self, shape, found, count):
        """What the first `count` slots of a file of float16 (reflex/state/layout.py) need of it, checked by those who copy it: the
        numbers of those chunks. They are on their way when this returns, see arrival.py."""
        from .arrival import Arrival, groups
        from .ring import Block

        plan, blocks = self.plan, (count + BLOCK - 1) // BLOCK
        self._land()
        taken = [*range(blocks), *([shape.blocks] if self.fixed and count else ())]
        if not any(shape.sizes[number] for number in taken):
            return taken
        layers = groups(len(plan.program.caches))
        values, wanted = self._values_before(layers), {}
        kept = (native.UInt8 * (8 * shape.firsts[-1])).from_buffer_copy(native.bytes_at(found.digests(shape), 8 * shape.firsts[-1]))
        for number in taken:  # the file may be closed before the digests are read
            ask_ahead(found.descriptor, found.offset(shape, number), shape.sizes[number])
            first, ends = shape.firsts[number], ()
            if number < shape.blocks:
                ends = [HALF * shape.stored(number) * end for end in values[:-1]] + [shape.sizes[number]]
            at = native.address_of(kept) + 8 * first
            wanted[number] = Block(found.offset(shape, number), shape.sizes[number], first, at, ends)

        def runs(number, page):
            stored = shape.stored(number)
            return self._runs(wanted[number].offset, min(stored, count - number * BLOCK), stored, page)

        state = wanted.pop(shape.blocks, None)
        slots = [*wanted.values()] if shape.slot else []
        arriving = Arrival(plan, found, slots, state, shape.piece, kept, runs, layers)
        if plan.device is None and not plan.gpu.starting.is_over:
            arriving.begin_later(plan.gpu.starting)
        else:
            plan.open()
            arriving.begin(plan.device)
        plan.arriving = arriving
        return taken

    def save(self, shape, out, start):
        """Write all chunks of a file of float16 to an OutputFile, from its byte `start` on; the digests of all their pieces."""
        from .ring import PARTS, UNWRITTEN, Block, ring_of

        plan = self.plan
        plan.open()
        self._land()
        digests, blocks = (Int64 * shape.firsts[-1])(), []
        for number, size in enumerate(shape.sizes):
            offset, first = start + shape.starts[number], shape.firsts[number]
            at = native.address_of(digests) + 8 * first
            blocks.append(Block(offset, size, first, at, runs=self._runs_of(shape, number, offset)))
        words = [
            word
            for block in blocks
            for unit in range(-(-block.size // (PARTS * shape.piece)))
            for word in block.unit(unit, out.descriptor, shape.piece)
        ]
        ring = ring_of(plan, plan.device, shape.piece, sum(shape.sizes))
        ring.lead()
        ring.begin(words, out=True)
        failed = ring.join()
        if failed:
            status = failed[2]
            raise out.failure(status ^ UNWRITTEN) if status & UNWRITTEN else driver.failure("a copy from the device", status)
        return list(digests)

    def _runs_of(self, shape, number, offset):
        """The runs of a chunk that is written at an offset; none for what is zeros."""
        if number < shape.blocks:
            stored = shape.stored(number)
            return self._runs(offset, stored, stored, self.plan.page_addresses[number]) if shape.slot else (Int64 * 3)()
        if self.place < 0:
            return (Int64 * 3)(offset)
        return (Int64 * 3)(offset, shape.fixed, self.plan.place_addresses[self.place])

    def _land(self):
        if self.plan.arriving is not None:
            self.plan.arriving.land()

    def _values_before(self, layers):
        """How many values of a slot come before the end of each number of layers."""
        sizes, found = [heads * (key_dim + value_dim) for heads, key_dim, value_dim in self.plan.program.caches], []
        for layer in layers:
            found.append(sum(sizes[:layer]))
        return found

    def _runs(self, start, count, stored, page):
        """int64[n, 3]: where the first `count` of `stored` slots of a block at `start` lie without a gap, there and in a page:
        (place from `start` on, bytes, place from `page` on)."""
        widths = {section.width for section in self.sections}
        if self._is_page and len(widths) == 1:  # heads follow each other at one distance, there and in a page
            row, heads = HALF * widths.pop(), sum(section.heads for section in self.sections)
            if count == SLOTS == stored:
                return (Int64 * 3)(start, heads * SLOTS * row, page)
            runs = (Int64 * (3 * heads))()
            runs[0::3] = range(start, start + heads * stored * row, stored * row)
            runs[1::3] = [count * row] * heads
            runs[2::3] = range(page, page + heads * SLOTS * row, SLOTS * row)
            return runs
        found = []
        for at, place, section in self._parts(stored, start, True):
            row = section.width * HALF
            for head in range(section.heads):
                found += at + head * stored * row, count * row, page + place + head * SLOTS * row
        return (Int64 * len(found))(*found)

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
