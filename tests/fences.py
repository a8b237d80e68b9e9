"""Memory between two pages that nobody may touch: what reads or writes a byte beyond it ends the process."""

from reflex import native

PAGE = native.PAGE


class Fenced:
    """`size` bytes that touch an unmapped page at their end, or at their start."""

    def __init__(self, size, at_end):
        inner = (size + PAGE - 1) & -PAGE
        self.mapping = native.alloc(inner + 2 * PAGE)
        for guard in (0, PAGE + inner):
            assert native.libc("mprotect", 3)(self.mapping.address + guard, PAGE, 0) == 0
        self.address = self.mapping.address + PAGE + (inner - size if at_end else 0)
        self.view = native.view(self.address, size)

    def free(self):
        self.view = None
        self.mapping.free()
