"""The cuda backend: a Program as launches of ahead-of-time compiled kernels over weights that lie on the device as in the file.

A Gpu starts before the model is opened: driver, context, kernels and upload pass on a thread of their own. A Plan lowers the
program for each batch size it meets and keeps the latest; one token after another is a CUDA graph. Every copy and launch
goes through one stream, so results are the same, bit for bit, every time. Nothing here imports numpy or numba.
"""

from ... import native
from ...errors import ContextOverflowError, InternalError, InvalidInputError, ReflexError
from ...program.records import BATCH
from . import device, module, upload
from .launch import Chain
from .lowering import Lowering
from .memory import CELLS, SLOTS, WEIGHTS, Layout, Memory

SHAPES = 8  # batch sizes whose launches are kept
ROW_STATS = 16  # bytes: largest logit, sum of exp, argmax, unused (kernels/cuda/logits.py)


class Gpu:
    """A device on its way to a model's weights."""

    def __init__(self, selection="", weights="quantized"):
        self.weights = weights
        self.starting = device.begin(selection or None)
        self.image = self.module = self.layout = self.upload = None
        self.base = 0  # device address of the weights

    def load(self, file):
        """Queue the loading of kernels and weights behind the start of the device."""
        self.layout = Layout(file)
        self.upload = upload.Upload(file.shards)
        for tensor in file.tensors.values():
            self.upload.add(self.layout.place(tensor.address), tensor.address, tensor.nbytes)
        self.starting.then(self._load)

    def _load(self, found):
        self.module = module.Module(found, self.choose(found))
        self.base = found.allocate(self.layout.size, "the weights")
        found.mark("arena")
        self.upload.begin(found, self.base)

    def choose(self, found):
        """The Images of kernels that fit the device."""
        if self.image is None:
            self.image = module.choose(found)
        return self.image

    @property
    def description(self):
        found = self.starting.chosen()
        return f"{found.name}, kernels {self.choose(found).target}"

    def close(self):
        """Give everything back; for a process that lives on."""
        if self.upload is not None:
            self.upload.finish()
        try:
            found = self.starting.ready()
        except ReflexError:  # said where the device was wanted
            self.starting.close()
            return
        if self.base:
            found.free(self.base)
        if self.module is not None:
            self.module.close()
        found.close()


class Shape:
    """The launches of one batch size."""

    __slots__ = ("chain", "first", "graph", "last", "runs")

    def __init__(self, chain, first, last):
        self.chain = chain
        self.first = first
        self.last = last
        self.graph = None
        self.runs = 0


class Plan:
    """A Program ready to run on a device. Interface shared with the other backends; see `evaluate` in cpu.py."""

    name = "cuda"
    batch = BATCH

    def __init__(self, file, program, context, gpu):
        self.file = file
        self.program = program
        self.context = context
        self.vocabulary = program.vocabulary
        self.library = native.library()
        self.gpu = gpu
        chosen = gpu.starting.chosen()
        self.image, self.multiprocessors = gpu.choose(chosen), chosen.multiprocessors
        self.memory = Memory(gpu.layout, program, context)
        self.device = None
        self.arenas = {}  # number -> address
        self.page_addresses = []
        self.allocated = 0  # bytes of arenas and pages
        self.shapes = {}  # (rows, wanted) -> Shape
        self.wanted = 0
        self.fetched = -1  # row whose logits the host holds
        self.host = native.alloc(4 * program.vocabulary, "logits")
        self.request = native.alloc(self.memory.request_bytes, "request")
        self.answer = native.alloc(ROW_STATS * self.memory.wanted_rows, "answers")
        self.answered = False

    # ---- the device ----

    def _open(self):
        self.device = self.gpu.starting.ready()
        self.module = self.gpu.module
        self.gpu.upload.wait()

    def _shape(self, rows, wanted):
        shape = self.shapes.pop((rows, wanted), None)
        if shape is None:
            chain = Chain(self.library)
            facts = self.image, self.multiprocessors, chain, self.file, self.program, self.memory
            first, last = Lowering(*facts, rows, wanted).lower()
            shape = Shape(chain, first, last)
            if self.device is None:
                self._open()
            self._place()
            for number, base in self.arenas.items():
                chain.rebase(number, base)
            chain.rebase(WEIGHTS, self.gpu.base)
            chain.bind(self.device, self.module)
            while len(self.shapes) >= SHAPES:
                self._drop(next(iter(self.shapes)))
        self.shapes[rows, wanted] = shape  # the latest is last
        return shape

    def _drop(self, key):
        shape = self.shapes.pop(key)
        self.device.synchronize()
        if shape.graph:
            shape.graph.close()
        shape.chain.close()

    def _place(self):
        """Allocate the arena that lowering asked for, fill in its constants."""
        sealed = self.memory.seal()
        if sealed is None:
            return
        number, size, constants = sealed
        base = self.arenas[number] = self.device.allocate(size, "activations")
        self.allocated += size
        for at, content in constants:
            block = native.alloc(len(content), "constants")
            native.view(block.address, len(content))[:] = content
            self.device.copy_in(base + at, block.address, len(content))
            self.device.synchronize()
            block.free()

    def _address(self, relative):
        """Device address of a relative one in an arena."""
        return self.arenas[relative >> 48 & 0xFF] + (relative & ((1 << 48) - 1))

    def _grow(self, slots):
        """Make sure that the cache has pages for `slots` slots."""
        first = len(self.page_addresses)
        count = (slots + SLOTS - 1) // SLOTS - first
        if count <= 0:
            return
        for _ in range(count):
            self.page_addresses.append(self.device.allocate(self.memory.page_bytes, f"a cache of {slots} tokens"))
        self.allocated += count * self.memory.page_bytes
        block = (native.Int64 * count)(*self.page_addresses[first:])
        self.device.copy_in(self._address(self.memory.pages) + 8 * first, native.address_of(block), 8 * count)
        self.device.synchronize()

    @property
    def marks(self):
        """Phases of the device thread: a list that grows, (phase, perf_counter_ns at its end)."""
        return self.gpu.starting.chosen().marks

    @property
    def device_bytes(self):
        """Bytes of device memory that this plan has allocated, weights included."""
        return self.allocated + self.gpu.layout.size

    # ---- computing ----

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs):
        """Compute one batch; see cpu.Plan.evaluate. Returns before the device has finished."""
        memory, count = self.memory, len(ids)
        if first_slot + count > self.context:
            raise ContextOverflowError(
                "the context is full", f"at most {self.context} tokens", first_slot + count, remedy="raise --ctx"
            )
        if not 0 < count <= memory.rows or len(outputs) > memory.wanted_rows:
            found = f"{count} tokens, {len(outputs)} rows of logits"
            raise InternalError("a batch has the wrong size", f"1 to {memory.rows} and at most {memory.wanted_rows}", found)
        embedded = self.file.tensors[self.program.steps[0].weights[0]].shape[1]
        if min(ids) < 0 or max(ids) >= embedded:
            raise InvalidInputError("a token id is outside the vocabulary", f"0 to {embedded - 1}", f"{min(ids)} to {max(ids)}")
        wanted = list(outputs) or [0]  # the head of one row costs less than a program without a head
        shape = self._shape(count, len(wanted))
        self._grow(first_slot + count)
        self._send((count, first_slot, len(wanted)), ids, positions, shared, branch, wanted)
        self.wanted, self.fetched, self.answered = len(outputs), -1, False
        shape.runs += 1
        if count == 1 and shape.graph is None and shape.runs > 2:
            shape.graph = shape.chain.capture(shape.first, shape.last)
        if shape.graph:
            shape.graph.launch()
        else:
            shape.chain.run(shape.first, shape.last)

    def _send(self, counts, *arrays):
        """Fill the request block and queue its copy; pageable memory is read before the call returns."""
        rows = self.memory.rows
        view = native.view(self.request.address, CELLS + 5 * rows, "i")
        view[0], view[1], view[2], view[3] = *counts, 0
        for number, values in enumerate(arrays):
            at = CELLS + number * rows
            for i, value in enumerate(values, at):
                view[i] = value
        self.device.copy_in(self._address(self.memory.cells), self.request.address, self.memory.request_bytes)

    # ---- results ----

    def _row(self, row):
        if not 0 <= row < self.wanted:
            raise InternalError("no such row of logits", f"0 to {self.wanted - 1}", row)
        return row

    def logits(self, row):
        """float32[vocabulary] of wanted row `row` on the host, valid until the next evaluation; argmax and sample use this copy."""
        if self.fetched != self._row(row):
            size = 4 * self.vocabulary
            self.device.copy_out(self.host.address, self._address(self.memory.places["logits"]) + size * row, size)
            self.device.synchronize()
            self.fetched = row
        return native.view(self.host.address, self.vocabulary, "f")

    def logprobs(self, row, token_ids):
        """log-softmax over the full vocabulary at the given ids."""
        count = len(token_ids)
        if not count:
            return []
        if min(token_ids) < 0 or max(token_ids) >= self.vocabulary:
            raise InvalidInputError("a token id is outside the vocabulary", f"0 to {self.vocabulary - 1}", max(token_ids))
        self.logits(row)
        block = (native.Int64 * (2 * count + 1))(*token_ids)
        at = native.address_of(block)
        self.library.logprobs(self.host.address, self.vocabulary, at, count, at + 8 * count, at + 16 * count)
        return native.view(at + 8 * count, count, "d").tolist()

    def argmax(self, row):
        if self.fetched == self._row(row):
            return self.library.argmax(self.host.address, self.vocabulary)
        if not self.answered:
            size = ROW_STATS * self.wanted
            self.device.copy_out(self.answer.address, self._address(self.memory.stats), size)
            self.device.synchronize()
            self.answered = True
        return native.view(self.answer.address + ROW_STATS * row, 4, "i")[2]

    def sample(self, row, temperature, top_k, top_p, min_p, random):
        """A token id drawn with `random` in [0, 1); see kernels/host/sample.py for the order of the filters."""
        self.logits(row)
        bits = (native.Double * 5)(temperature, top_p, min_p, random, 0.0)
        heap = native.alloc(16 * self.vocabulary, "sampling heap")
        try:
            return self.library.sample(self.host.address, self.vocabulary, top_k or 0, native.address_of(bits), heap.address)
        finally:
            heap.free()

    def close(self):
        """Give back all device memory and the device."""
        for key in list(self.shapes):
            self._drop(key)
        if self.device is not None:
            for address in [*self.arenas.values(), *self.page_addresses]:
                self.device.free(address)
        self.arenas.clear()
        self.page_addresses.clear()
        self.gpu.close()
        for mapping in (self.host, self.request, self.answer):
            mapping.free()


