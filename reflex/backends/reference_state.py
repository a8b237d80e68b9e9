"""The memory of the reference backend as sections of a state file (sections.py). Imported where one is read or written."""

import numpy as np

from ..native import view
from .sections import fixed_sections, slot_sections


class Store:
    """See sections.py. A layer's keys and values are float32 [slots, heads * width]."""

    half = False
    place = 0
    parallel = fetches = False
    origin = "numpy"

    def __init__(self, plan):
        self.plan = plan
        self.sections, self.fixed = slot_sections(plan.program), fixed_sections(plan.program)

    def read(self, first, count, address, half):
        """Slots [first, first + count) to `address`."""
        for section, cache, layer in self._caches():
            rows = cache[layer][first : first + count].reshape(count, section.heads, section.width)
            data = np.ascontiguousarray(rows.transpose(1, 0, 2), "float16" if half else "float32")
            view(address, data.nbytes)[:] = data.reshape(-1).view(np.uint8)
            address += data.nbytes

    def write(self, first, count, stored, address, half):
        """The first `count` of `stored` slots at `address` to the slots from `first` on."""
        for section, cache, layer in self._caches():
            nbytes = (2 if half else 4) * stored * section.values
            data = np.frombuffer(view(address, nbytes), "float16" if half else "float32")
            rows = data.reshape(section.heads, stored, section.width)[:, :count].transpose(1, 0, 2)
            self.plan.put(cache, layer, range(first, first + count), rows.reshape(count, section.values))
            address += nbytes

    def read_fixed(self, address):
        """Fixed sections to `address`."""
        for section, state in zip(self.fixed, self.plan.state(self.place), strict=True):
            data = np.zeros(section.width, np.float32) if self.place < 0 else state
            view(address, data.nbytes)[:] = data.view(np.uint8)
            address += data.nbytes

    def write_fixed(self, address):
        """Fixed sections at `address` to their place."""
        for state in self.plan.state(self.place):
            state[:] = np.frombuffer(view(address, state.nbytes), np.float32)
            address += state.nbytes

    def _caches(self):
        sections = iter(self.sections)
        for layer, (_, key_dim, value_dim) in enumerate(self.plan.program.caches):
            for cache, width in ((self.plan._keys, key_dim), (self.plan._values, value_dim)):
                if width:
                    yield next(sections), cache, layer
