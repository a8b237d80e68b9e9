"""What a plan's memory of earlier tokens consists of, in one arrangement that is the same on every backend.

A plan's `store()` gives an object with the interface of `Store`, by which state files (reflex/state) read and write that memory.
Two kinds of section: *slots*, one row per token (keys, values, latent vectors), and *fixed*, one state that all tokens so far have
left (recurrent layers), which no prefix can be cut from; it is that behind all tokens of a file but the last, which whoever uses
the file computes again. Slots go in blocks of BLOCK; in a block the sections follow each other,
each [heads][slots of the block][width]. Fixed sections are [heads][width] and always float32.

    class Store:
        sections = ()   # of slots, in order
        fixed = ()      # fixed ones, in order
        half = False    # whether slots are kept as float16, so that a file of those loses nothing
        parallel = True # whether threads may write at the same time
        fetches = False # whether it reads and checks files of float16 by itself, and writes them: chunks of a reflex.state.layout
                        # `shape`; nothing is taken over that was not found right
        origin = ""     # what computes, as far as it decides the last bits of values
        place = 0       # of the fixed sections among those of the plan (program.records.PLACES); -1: zeros are read
        def read(self, first, count, address, half)            # slots [first, first + count) of one block to `address`
        def write(self, first, count, stored, address, half)   # the first `count` slots of a block of `stored` there
        def read_fixed(self, address)
        def write_fixed(self, address)
        def fetch(self, shape, found, count)                   # where it fetches: what `count` slots need; numbers of the chunks
        def save(self, shape, out, start)                      # where it fetches: to an OutputFile; the digests of all pieces

A plan on a GPU has `state_at(place)`: the device address of the float32 numbers of all its fixed sections, one after the other.
Called by reflex/state; each backend has its own in a file beside it.
"""

from .. import native

BLOCK = 256  # slots; also of a page of the cuda backend, so that a block of a file is a page of its cache


class Section:
    """A part of the state with a name of its own: `heads` rows of `width` values for every slot, or once."""

    __slots__ = ("heads", "name", "width")

    def __init__(self, name, heads, width):
        self.name = name
        self.heads = heads
        self.width = width

    @property
    def values(self):
        """Values of one slot, or of a fixed state."""
        return self.heads * self.width


def slot_sections(program):
    """The sections of a program's caches: keys and values of a layer, or latent vectors where that has no values."""
    found = []
    for number, (heads, key_dim, value_dim) in enumerate(program.caches):
        found.append(Section(f"{'keys' if value_dim else 'latent'} {number}", heads, key_dim))
        if value_dim:
            found.append(Section(f"values {number}", heads, value_dim))
    return found


def fixed_sections(program):
    """The sections of what recurrent layers keep: one for each step that has a state, in the order of the program."""
    return [Section(f"state {number}", 1, size) for number, size in enumerate(program.states)]


def slot_bytes(sections, half):
    """Bytes of one slot of all sections."""
    return (2 if half else 4) * sum(section.values for section in sections)


def rearrange(library, source, target, source_bytes, target_bytes, *dimensions):
    """Copy values; up to four `dimensions`, outermost first: (count, bytes from one to the next in the source, in the target). A
    value has 2 bytes (float16) or 4 (float32) on either side."""
    words = [source, target, source_bytes, target_bytes]
    for dimension in ((1, 0, 0),) * (4 - len(dimensions)) + dimensions:
        words += dimension
    block = (native.Int64 * len(words))(*words)
    library.rearrange(native.address_of(block))
