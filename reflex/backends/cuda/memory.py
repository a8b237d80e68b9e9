"""Where everything lies on the device: one arena of named buffers, the weights as the file has them, pages of the cache.

Addresses are handed out before the device exists: they are offsets into an area (launch.relative) until the backend has
allocated it and tells the chains. Called by lowering.py and backend.py.
"""

from ... import native
from ...errors import InternalError
from ...program.records import BATCH, PLACES, RUN_WORDS
from ...quant.types import by_id, by_name
from .launch import relative
from .lifetimes import INPUT, arrange, moments

ALIGN = 256
SLACK = 256  # readable bytes behind the arena, so that wide loads may run over an end
SLOTS = 256  # cache slots per page
WEIGHTS, EXPANDED = 128, 129  # areas of the weights as in the file, and as float numbers; areas below are the arenas
PAGE = 4096
EXPANDED_AT_ONCE = 16384  # values per block of the kernels expand_*
CELLS = 16  # int32: rows, first slot, wanted rows, stop flag, ... (kernels of reflex/kernels/cuda)
LOGITS_BYTES, MOST_LOGITS_BYTES = 32 << 20, 256 << 20  # of a batch; of one that wants more rows, in buffers made for it


def offset(address):
    """Where in its area a relative address lies."""
    return address & ((1 << 48) - 1)


def up(size, unit=ALIGN):
    return (size + unit - 1) // unit * unit


class Layout:
    """Where the tensors of a file lie in the area of the weights: as in the file, shard behind shard, without headers.

    `weights`: quantized, or the float type (f16, f32) that matrices are expanded to, in an area of their own. `most`: {tensor name:
    bytes} of those that get no more room than that; the others are then close together, in their order in the file."""

    def __init__(self, file, weights="quantized", most=None):
        self.shards = []  # (first byte of the data in the reader's mapping, bytes, offset in the area)
        self.begins = {}  # the same by their first byte, where tensors lie by themselves: offset in the area
        self.size = 0
        self.expanded = {}  # tensor name -> (offset in the area EXPANDED, type id)
        self.expanded_size = 0
        if weights != "quantized":
            self._expand(file, by_name(weights))
        if most:
            self._place_each(file, most)
        else:
            self._place_shards(file)
        self.size += SLACK

    def _place_shards(self, file):
        for shard in (*file.shards[file.own :], *file.shards[: file.own]):  # adapters are small, and needed from the first layer on
            start = shard.mapping.address + (shard.data_start & -PAGE)  # alignment is kept
            size = shard.mapping.address + shard.data_end - start
            self.shards.append((start, size, self.size))
            self.size = up(self.size + size, PAGE)

    def _place_each(self, file, most):
        for tensor in sorted(file.tensors.values(), key=lambda tensor: tensor.address):
            size, at = most.get(tensor.name, tensor.nbytes), up(self.size) + tensor.address % ALIGN
            self.shards.append((tensor.address, size, at))
            self.begins[tensor.address] = at
            self.size = at + size

    def _expand(self, file, kind):
        for tensor in file.tensors.values():
            if len(tensor.shape) == 2 and by_id(tensor.type).elements > 1:
                self.expanded[tensor.name] = self.expanded_size, kind.id
                self.expanded_size = up(self.expanded_size + tensor.elements * kind.nbytes)
        self.expanded_size += SLACK

    def kind(self, tensor):
        """The type id that a tensor has on the device."""
        expanded = self.expanded.get(tensor.name)
        return expanded[1] if expanded else tensor.type

    def place(self, address):
        """Offset in the area of an address in the reader's mapping."""
        if address in self.begins:
            return self.begins[address]
        for start, size, at in self.shards:
            if start <= address < start + size:
                return at + address - start
        raise InternalError("an address outside the tensors of a model", where=hex(address))


class Memory:
    """Names -> relative addresses. What is asked for goes to the open arena; `seal` ends it, and a next one begins."""

    def __init__(self, layout, program, context):
        self.layout = layout
        self.program = program
        self.rows = min(BATCH, context)
        self.wanted_rows = max(1, min(self.rows, LOGITS_BYTES // (4 * program.vocabulary)))
        self.arena = 0  # number of the open arena
        self.size = 0  # bytes of it
        self.places = {}  # name -> relative address
        self.exact = None  # whether matrices are numbers proper, once somebody asked (attention.py)
        self.constants = []  # (offset, bytes) to be uploaded into the open arena
        self.most_wanted = max(self.wanted_rows, min(self.rows, MOST_LOGITS_BYTES // (4 * program.vocabulary)))
        self.strand_words = 0
        if program.states:
            from .recurrent import strand_words

            self.strand_words = strand_words(self.rows)
            self.place_table = self.named("places", 8 * PLACES)
        self.request_bytes = 4 * (CELLS + 6 * self.rows + self.strand_words + RUN_WORDS)
        self.cells = self.named("request", self.request_bytes)
        start = self.cells + 4 * CELLS
        self.ids, self.positions, self.shared, self.branch, self.wanted, self.strands = (
            start + 4 * self.rows * i for i in range(6)
        )
        self.lists = self.strands + 4 * self.strand_words
        self.page_count = (context + SLOTS - 1) // SLOTS
        self.pages = self.named("pages", 8 * self.page_count)
        self.stats = self.named("stats", 16 * self.wanted_rows)
        self.layer_places, self.page_bytes = self._page_layout()
        self._share()

    def _share(self):
        """Hand out the activation buffers that launches use; in one place where their contents are not needed together."""
        used = moments(self.program)
        sizes = {name: up(self._bytes(name)) for name in used}
        offsets, size = arrange(sizes, used)
        base = self.named("activations", size)
        self.places.update((name, base + at) for name, at in offsets.items())

    def _bytes(self, name):
        """Of an activation buffer."""
        if name == INPUT:
            inputs = {step.ins[0] for step in self.program.steps if step.op in ("linear", "expert_linear")}
            widest = max(up(self.program.widths[name], 32) for name in inputs)
            return 2 * self.rows * widest
        return 4 * (self.wanted_rows if name == "logits" else self.rows) * self.program.widths[name]

    def named(self, name, size):
        """The buffer called `name`, made on first use."""
        address = self.places.get(name)
        if address is None:
            at = up(self.size)
            self.size = at + size
            self.places[name] = address = relative(self.arena, at)
        return address

    def seal(self):
        """(number, bytes, constants) of the open arena, or None when nothing was asked for since the last time."""
        if not self.size:
            return None
        sealed = self.arena, self.size + SLACK, self.constants
        self.arena, self.size, self.constants = self.arena + 1, 0, []
        if self.arena == WEIGHTS:
            raise InternalError("too many arenas", WEIGHTS, self.arena)
        return sealed

    def buffer(self, name):
        """float32 [rows, width] of an activation buffer of the program."""
        return self.named(name, self._bytes(name))

    def halves(self):
        """(values, factors) of the input of a product as half floats (kernels/cuda/halves.py)."""
        return self.named(INPUT, self._bytes(INPUT)), self.named("factors", 4 * self.rows)

    def rest(self):
        """The same of what the half floats leave."""
        return self.named(f"rest of {INPUT}", self._bytes(INPUT)), self.named("factors of the rest", 4 * self.rows)

    def room(self, wanted):
        """The number of wanted rows that buffers for so many hold."""
        return self.wanted_rows if wanted <= self.wanted_rows else min(self.most_wanted, 1 << (wanted - 1).bit_length())

    def of_wanted(self, name, wanted, row_bytes):
        """The buffer `name` for at least `wanted` rows."""
        room = self.room(wanted)
        return self.named(name if room == self.wanted_rows else f"{name} {room}", room * row_bytes)

    def logits(self, wanted):
        return self.of_wanted("logits", wanted, 4 * self.program.vocabulary)

    def stats_of(self, wanted):
        return self.of_wanted("stats", wanted, 16)

    def selected(self, name, wanted):
        """The wanted rows of a buffer."""
        if name == "logits":
            return self.logits(wanted)
        return self.of_wanted(name + " selected", wanted, 4 * self.program.widths[name])

    def constant(self, name, data):
        """Bytes that are uploaded once with their arena; `data` is a function, called on first use."""
        address = self.places.get(name)
        if address is None:
            content = data()
            address = self.named(name, len(content))
            self.constants.append((offset(address), content))
        return address

    def zeros(self, name, size):
        """A buffer that starts as zeros."""
        return self.constant(name, lambda: bytes(size))

    def weight(self, tensor):
        """The relative address of a tensor's first byte."""
        expanded = self.layout.expanded.get(tensor.name)
        return relative(EXPANDED, expanded[0]) if expanded else self.stored(tensor)

    def stored(self, tensor):
        """The relative address of a tensor as the file has it."""
        return relative(WEIGHTS, self.layout.place(tensor.address))

    def floats(self, tensor):
        """A tensor of float32 (norm weights, biases): in place, or decoded where the file stores another type."""
        if tensor.type == 0:
            return self.weight(tensor)
        return self.constant("decoded " + tensor.name, lambda: decoded(tensor))

    def frequencies(self, index):
        """float64 frequencies of a rotary table."""
        return self.constant(f"frequencies {index}", lambda: doubles(self.program.ropes[index].frequencies))

    def _page_layout(self):
        """([byte offset in a page of each layer's keys and values], bytes of a page)."""
        places, size = [], 0
        for heads, key_dim, value_dim in self.program.caches:
            places.append(size)
            size += up(2 * SLOTS * heads * (key_dim + value_dim), 512)
        return places, size + SLACK


def new_page(device, size, pages):
    """A page of the cache, one of so many."""
    page = device.allocate(size, f"a cache of {pages * SLOTS} tokens")
    device.fill(page, 0, size // 4)  # tiles of attention read slots that were never written
    return page


def place_bytes(program):
    """Of the states of all recurrent layers."""
    return 4 * sum(program.states)


def new_place(device, program):
    return device.allocate(place_bytes(program), "states of recurrent layers")


def doubles(values):
    view = memoryview(bytearray(8 * len(values))).cast("d")
    for i, value in enumerate(values):
        view[i] = value
    return bytes(view)


def decoded(tensor):
    """float32 bytes of a small tensor, decoded on the host."""
    mapping = native.alloc(4 * tensor.elements, tensor.name)
    getattr(native.library(), "decode_" + by_id(tensor.type).name)(tensor.address, mapping.address, tensor.elements)
    data = native.bytes_at(mapping.address, 4 * tensor.elements)
    mapping.free()
    return data
