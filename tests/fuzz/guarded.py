"""Memory between two pages that cannot be touched, so that one byte read or written too far ends the process."""

from reflex import native

PAGE = native.PAGE


class Guarded:
    """`size` usable bytes, rounded up to pages, from `start` to `end`; both border on guard pages."""

    def __init__(self, size, alloc=native.alloc):
        self.size = max(PAGE, (size + PAGE - 1) & -PAGE)
        self.mapping = alloc(self.size + 2 * PAGE)
        self.start = self.mapping.address + PAGE
        self.end = self.start + self.size
        protect = native.libc("mprotect", 3)
        if protect(self.mapping.address, PAGE, 0) or protect(self.end, PAGE, 0):
            raise MemoryError("mprotect failed")

    def put(self, data, at_end):
        """Address of a copy of `data` that touches the guard page behind it, or the one in front."""
        address = self.end - len(data) if at_end else self.start
        native.view(address, len(data))[:] = data
        return address

    def free(self):
        self.mapping.free()


class Allocator:
    """Stands in for native.alloc: buffers between guard pages, by turns against the one behind (but for the rounding to 64 bytes)
    and the one in front. `close` puts the real one back and frees what is left."""

    def __init__(self):
        self.real, self.free = native.alloc, native.Mapping.free
        self.held = {}
        self.turn = False
        native.alloc = self.alloc
        native.Mapping.free = lambda mapping: self.release(mapping)

    def alloc(self, size, what="buffer"):
        self.turn = not self.turn
        memory = Guarded(size, self.real)
        address = memory.start if self.turn else memory.end - ((size + 63) & -64)
        self.held[address] = memory
        return native.Mapping(address, size)

    def release(self, mapping):
        memory = self.held.pop(mapping.address, None)
        if memory is None:
            self.free(mapping)
        else:
            self.free(memory.mapping)
            mapping.address = mapping.size = 0

    def close(self):
        native.alloc, native.Mapping.free = self.real, self.free
        for memory in self.held.values():
            memory.mapping.free()
