"""The memory of the cpu backend as sections of a state file (sections.py). Imported where one is read or written."""

from .. import native
from .sections import fixed_sections, rearrange, slot_bytes, slot_sections

FLOAT = 4  # bytes of a value in the cache
KEYS = 32  # slots of a block of keys (kernels/host/attention.py)


class Store:
    """See sections.py."""

    half = False
    place = 0
    parallel = True
    fetches = False

    def __init__(self, plan):
        self.memory, self.library = plan.memory, plan.library
        self.origin = plan.library.level
        self.sections, self.fixed = slot_sections(plan.program), fixed_sections(plan.program)
        self._places = []  # (address in the cache, whether it holds blocks of keys, heads, width) of each section
        for (heads, key_dim, value_dim), places in zip(plan.program.caches, plan.memory.caches, strict=True):
            keys, values = places
            self._places.append((keys, value_dim > 0, heads, key_dim))
            if value_dim:
                self._places.append((values, False, heads, value_dim))

    def read(self, first, count, address, half):
        """Slots [first, first + count) to `address`."""
        for at, place in self._parts(count, address, half):
            for skip, *dimensions in self._dimensions(place, count, count, first, half):
                swapped = [(n, there, here) for n, here, there in dimensions]
                rearrange(self.library, skip[1], at + skip[0], FLOAT, 2 if half else FLOAT, *swapped)

    def write(self, first, count, stored, address, half):
        """The first `count` of `stored` slots at `address` to the slots from `first` on."""
        for at, place in self._parts(stored, address, half):
            for skip, *dimensions in self._dimensions(place, count, stored, first, half):
                rearrange(self.library, at + skip[0], skip[1], 2 if half else FLOAT, FLOAT, *dimensions)

    def _fixed(self):
        """The bytes of the fixed sections, which lie as in a file."""
        base = self.memory.places["states"] + self.place * self.memory.place_bytes
        return native.view(base, self.memory.place_bytes)

    def read_fixed(self, address):
        """Fixed sections to `address`."""
        target = native.view(address, self.memory.place_bytes)
        target[:] = bytes(len(target)) if self.place < 0 else self._fixed()

    def write_fixed(self, address):
        """Fixed sections at `address` to their place."""
        self._fixed()[:] = native.view(address, self.memory.place_bytes)

    @staticmethod
    def _bytes(section, half):
        return slot_bytes((section,), half)

    def _parts(self, stored, address, half):
        """(address in the file, place in the cache) of each section of a block of `stored` slots."""
        for section, place in zip(self.sections, self._places, strict=True):
            yield address, place
            address += stored * self._bytes(section, half)

    def _dimensions(self, place, count, stored, first, half):
        """How `count` slots lie in the file and in the cache: ((offset in the file, address in the cache), *dimensions), once for
        whole blocks of keys and once for the rest."""
        base, keys, heads, width = place
        capacity, value = self.memory.capacity, 2 if half else FLOAT
        over_heads = (heads, stored * width * value, capacity * width * FLOAT)
        row = width * value
        if not keys:
            yield (0, base + first * width * FLOAT), over_heads, (count, row, width * FLOAT), (width, value, FLOAT)
            return
        whole, rest = count // KEYS, count % KEYS
        start, block = base + first * width * FLOAT, KEYS * width * FLOAT
        inner = (width, value, KEYS * FLOAT)
        if whole:
            yield (0, start), over_heads, (whole, KEYS * row, block), (KEYS, row, FLOAT), inner
        if rest:
            yield (whole * KEYS * row, start + whole * block), over_heads, (rest, row, FLOAT), inner
