"""The cuda backend: a Program as launches of ahead-of-time compiled kernels over weights that lie on the device as in the file.

A Plan lowers the program for each batch size it meets and keeps the latest; one token after another is a CUDA graph. Every
copy and launch goes through one stream, so results are the same, bit for bit, every time. The device itself is a Gpu's affair
(gpu.py). Nothing here imports numpy or numba.
"""

from ... import native
from ...errors import ContextOverflowError, InternalError, InvalidInputError
from ...program.records import BATCH, PLACES
from .attention import reach_of, tree_of
from .decode import Decoder, Run, supports
from .draw import Draw
from .launch import Chain
from .lowering import lowering, refuse_large
from .memory import CELLS, EXPANDED, SLOTS, WEIGHTS, Memory, new_page
from .parameters import lists_of_runs
from .products import STEADY

SHAPES = 8  # batch sizes whose launches are kept
ROW_STATS = 16  # bytes: largest logit, sum of exp, argmax, its logarithm (kernels/cuda/logits.py)


class Shape:
    """The launches of one batch size."""

    __slots__ = ("chain", "first", "graph", "last", "parts", "runs", "stops")

    def __init__(self, chain, first, last, stops):
        self.chain = chain
        self.first = first
        self.last = last
        self.graph = None
        self.parts = ()  # of a shape that is met before all weights are there: (mark of the upload, first, last)
        self.stops = stops  # of batches that ask for their experts, see batch.py
        self.runs = 0


class Plan:
    """A Program ready to run on a device. Interface shared with the other backends; see `evaluate` in cpu.py."""

    name = "cuda"
    batch = BATCH
    steady = False  # only batches that ask for it

    def __init__(self, file, program, context, gpu):
        lowering(program)  # refuses what it cannot run
        self.file = file
        self.program = program
        self.context = context
        self.vocabulary = program.vocabulary
        self.library = native.library()
        self.gpu = gpu
        self.experts = None  # those that stay in the file until they are asked for (asking.py)
        chosen = gpu.starting.chosen()
        self.image, self.multiprocessors = gpu.choose(chosen), chosen.multiprocessors
        refuse_large(program, self.image)
        self.memory = Memory(gpu.layout, program, context)
        self.device = None
        self.arenas = {}  # number -> address
        self.page_addresses, self.place_addresses = [], []  # of the cache, of states of recurrent layers
        self.places = PLACES if program.states else 0
        self.allocated = 0  # bytes of arenas and pages
        self.arrived = False  # whether launches need not wait for weights any more
        self.shapes = {}  # (rows, wanted, reach, tree, asking) -> Shape
        self.wanted = 0
        self.logits_at = self.stats_at = 0  # relative addresses of the latest results
        self.fetched = -1  # row whose logits the host holds
        self.decoder = self.drawer = self.query = None  # made on first use
        self.arriving = self.ring = None  # slots of a state file that are on their way, and through what (arrival.py)
        self.host = native.alloc(4 * program.vocabulary, "logits")
        self.request = native.alloc(self.memory.request_bytes, "request")
        self.answer = native.alloc(ROW_STATS * self.memory.most_wanted, "answers")
        self.most_outputs = self.memory.most_wanted
        self.answered = False

    # ---- the device ----

    def open(self):
        """Make sure that the device, its kernels and the first arena are there; `evaluate` does so by itself."""
        self._open()
        self._place()

    def store(self):
        """What reads and writes the memory of earlier tokens, for state files; see state.py."""
        from .state import Store

        return Store(self)

    def _open(self):
        if self.device is None:
            self.device = self.gpu.starting.ready()
            self.module = self.gpu.module
            if self.gpu.layout.expanded:
                self._arrive()
                self.gpu.expand(self.library)

    def _arrive(self):
        """Let all that is queued from now on wait for the weights."""
        if not self.arrived:
            self.gpu.upload.wait()
            self.arrived = True

    def lower(self, chain, *shape):
        """Append the launches of one evaluation to a chain; returns their (first, last, stops). Needs no device yet."""
        facts = self.image, self.multiprocessors, chain, self.file, self.program, self.memory
        return lowering(self.program)(*facts, *shape).lower()

    def settle(self, chain, whole=False):
        """Make a chain ready to run: every buffer it names is allocated, every address absolute, every weight there; with `whole`
        those of experts too that stayed in the file (see `_complete`)."""
        if whole:
            self.gpu.plan_upload(False)
        self._settle(chain)
        if whole:
            self._complete()
        self._arrive()

    def _complete(self):
        """Let all that is queued from now on find every expert on the device."""
        self.gpu.upload_rest()
        if self.experts is not None:
            self.experts.close()
            self.experts = None

    def _choose_experts(self, rows):
        """Decide whether a batch of so many rows asks for its experts, where they may have stayed in the file."""
        if self.experts is None:
            from .asking import Experts

            self.experts = Experts(self.gpu, self.program, self.memory.rows)
        few = self.experts.few(rows)
        self.gpu.plan_upload(few)
        if not (few and self.gpu.stacks):
            self._complete()

    def _settle(self, chain):
        self._open()
        self._place()
        for number, base in self.arenas.items():
            chain.rebase(number, base)
        chain.rebase(WEIGHTS, self.gpu.base)
        chain.rebase(EXPANDED, self.gpu.expanded)
        chain.bind(self.device, self.module)

    def _shape(self, *key):
        shape = self.shapes.pop(key, None)
        if shape is None:
            chain = Chain(self.library)
            shape = Shape(chain, *self.lower(chain, *key))
            if self.device is None:
                self.gpu.prepare({kernel.name: kernel for kernel in chain.kernels if kernel}.values())
            for stop in shape.stops:
                chain.alone(stop[0])
            if not (self.arrived or self.gpu.layout.expanded):
                shape.parts = self.gpu.parts(chain, shape.first, shape.last)
            self._settle(chain)
            while len(self.shapes) >= SHAPES:
                self._drop(next(iter(self.shapes)))
        self.shapes[key] = shape  # the latest is last
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
            self.device.copy_in(base + at, block.address, len(content))  # pageable: read when the call returns
            block.free()

    def address(self, relative):
        """Device address of a relative one in an arena."""
        return self.arenas[relative >> 48 & 0xFF] + (relative & ((1 << 48) - 1))

    def grow(self, slots):
        """Make sure that the cache has pages for `slots` slots."""
        first, needed = len(self.page_addresses), (slots + SLOTS - 1) // SLOTS
        if self.arriving is not None:
            self.page_addresses += self.arriving.begun().pages[first:]
        while len(self.page_addresses) < needed:
            self.page_addresses.append(new_page(self.device, self.memory.page_bytes, needed))
        count = len(self.page_addresses) - first
        self.allocated += count * self.memory.page_bytes
        if count:
            block = (native.Int64 * count)(*self.page_addresses[first:])
            self.device.copy_in(self.address(self.memory.pages) + 8 * first, native.address_of(block), 8 * count)
            self.device.synchronize()

    @property
    def marks(self):
        """Phases of the device thread: a list that grows, (phase, perf_counter_ns at its end)."""
        return self.gpu.starting.chosen().marks

    @property
    def device_bytes(self):
        """Bytes of device memory that this plan has allocated, weights included."""
        return self.allocated + self.gpu.layout.size + self.gpu.layout.expanded_size

    # ---- computing ----

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, runs=(), steady=False, strands=()):
        """Compute one batch; see cpu.Plan.evaluate. Returns before the device has finished. A `steady` batch takes longer than
        others where it is small; branches need not be in one, runs do."""
        count = len(ids)
        self.check(ids, first_slot, outputs)
        reach = reach_of(first_slot + count) if steady or runs else 0
        if self.gpu.stacks:
            self._choose_experts(count)
        if self.experts and self.arriving:
            self.arriving.land()
        shape = self._shape(count, len(outputs) or 1, reach, tree_of(branch) if reach else 0, self.experts is not None)
        self.accept(ids, first_slot, positions, shared, branch, outputs, runs, strands)
        shape.runs += 1
        if self.experts is not None:
            self.experts.run(self, shape)
            self._arrive()
            return
        if self.arriving is not None:
            self.arriving.run(shape)
            self._arrive()
            return
        if (count == 1 or (reach and count <= STEADY)) and shape.graph is None and shape.runs > 2:
            shape.graph = shape.chain.capture(shape.first, shape.last)
        if shape.graph:
            shape.graph.launch()
        elif self.arrived:
            shape.chain.run(shape.first, shape.last)
        else:
            self._run_behind_upload(shape)

    def check(self, ids, first_slot, outputs):
        """Refuse a batch that cannot be computed."""
        memory, count = self.memory, len(ids)
        if first_slot + count > self.context:
            raise ContextOverflowError(
                "the context is full", f"at most {self.context} tokens", first_slot + count, remedy="raise --ctx"
            )
        if not 0 < count <= memory.rows or len(outputs) > memory.most_wanted:
            found = f"{count} tokens, {len(outputs)} rows of logits"
            raise InternalError("a batch has the wrong size", f"1 to {memory.rows} and at most {memory.most_wanted}", found)
        embedded = self.file.tensors[self.program.steps[0].weights[0]].shape[1]
        if min(ids) < 0 or max(ids) >= embedded:
            raise InvalidInputError("a token id is outside the vocabulary", f"0 to {embedded - 1}", f"{min(ids)} to {max(ids)}")

    def accept(self, ids, first_slot, positions, shared, branch, outputs, runs=(), strands=()):
        """Send a batch to the device, for launches that were settled before."""
        memory, count = self.memory, len(ids)
        wanted = list(outputs) or [0]  # the head of one row costs less than a program without a head
        self.grow(first_slot + count)
        self._send((count, first_slot, len(wanted)), (ids, positions, shared, branch, wanted), runs, strands)
        self.logits_at, self.stats_at = memory.logits(len(wanted)), memory.stats_of(len(wanted))
        self.wanted, self.fetched, self.answered = len(outputs), -1, False

    def _run_behind_upload(self, shape):
        """The launches of the first evaluation, each part as soon as its weights are there: the rest is still on its way."""
        for mark, first, last in shape.parts:
            self.gpu.upload.wait(mark)
            shape.chain.run(first, last)
        self._arrive()

    def _send(self, counts, arrays, runs=(), strands=()):
        """Fill the request block and queue its copy; pageable memory is read before the call returns."""
        rows, (_, _, _, branch, _) = self.memory.rows, arrays
        size = CELLS + len(arrays) * rows
        view = native.view(self.request.address, self.memory.request_bytes // 4, "i")
        plain = next((row for row, start in enumerate(branch) if start), len(branch))
        view[0], view[1], view[2], view[3], view[4] = *counts, 0, plain
        for number, values in enumerate(arrays):
            at = CELLS + number * rows
            for i, value in enumerate(values, at):
                view[i] = value
        if self.places:
            from .recurrent import send

            send(self, view, size, strands, counts[0])
            size += self.memory.strand_words
        if runs:
            words = lists_of_runs(runs, rows)
            for i, value in enumerate(words, size):
                view[i] = value
            size += len(words)
        self.device.copy_in(self.address(self.memory.cells), self.request.address, 4 * size)

    # ---- results ----

    def _row(self, row):
        if not 0 <= row < self.wanted:
            raise InternalError("no such row of logits", f"0 to {self.wanted - 1}", row)
        return row

    def logits(self, row):
        """float32[vocabulary] of wanted row `row` on the host, valid until the next evaluation; argmax and sample use this copy."""
        if self.fetched != self._row(row):
            size = 4 * self.vocabulary
            self.device.copy_out(self.host.address, self.address(self.logits_at) + size * row, size)
            self.device.synchronize()
            self.fetched = row
        return native.view(self.host.address, self.vocabulary, "f")

    def logprobs(self, row, token_ids):
        """log-softmax over the full vocabulary at the given ids."""
        return self.logprobs_of_rows([row], [token_ids])[0]

    def logprobs_of_rows(self, rows, ids):
        """[logprobs(row, ids of that row)], with one launch for all."""
        pairs = [(self._row(row), token) for row, wanted in zip(rows, ids, strict=True) for token in wanted]
        for _, token in pairs:
            if not 0 <= token < self.vocabulary:
                raise InvalidInputError("a token id is outside the vocabulary", f"0 to {self.vocabulary - 1}", token)
        if self.query is None:
            from .query import Query

            self.query = Query(self)
        values = iter(self.query.run(pairs))
        return [[next(values) for _ in wanted] for wanted in ids]

    def argmax(self, row):
        if self.fetched == self._row(row):
            return self.library.argmax(self.host.address, self.vocabulary)
        if not self.answered:
            size = ROW_STATS * self.wanted
            self.device.copy_out(self.answer.address, self.address(self.stats_at), size)
            self.device.synchronize()
            self.answered = True
        return native.view(self.answer.address + ROW_STATS * row, 4, "i")[2]

    def sample(self, row, temperature, top_k, top_p, min_p, random):
        """A token id drawn with `random` in [0, 1), -1 where logits are not numbers; kernels/host/sample.py orders the filters. The
        host draws where it holds the row (and may have changed it), else the device."""
        if self.fetched != self._row(row) and temperature > 0:
            if self.drawer is None:
                self.drawer = Draw(self)
            return self.drawer.run(row, temperature, top_k, top_p, min_p, random)
        logits = self.logits(row)
        bits = (native.Double * 5)(temperature, top_p, min_p, random, 0.0)
        heap = native.alloc(16 * self.vocabulary, "sampling heap")
        try:
            at = native.address_of(bits)
            token = self.library.sample(self.host.address, self.vocabulary, top_k or 0, at, heap.address)
            return token if logits[token] - logits[token] == 0 else -1
        finally:
            heap.free()

    def follow(self, token, slot, sampling, draws, recent, ends, most, states=None):
        """An iterator of up to `most` (id, log-probability) that the device makes by itself after `token`, the input of slot
        `slot`; None where the host must choose. `draws`: random numbers used so far; `recent`: the ids before.
        `states`: see decode.Run."""
        if self.gpu.slots or not supports(sampling, ends):
            return None
        if self.experts is not None:
            self._complete()
        if self.decoder is None:
            self.decoder = Decoder(self)
        return Run(self.decoder, token, slot, sampling, draws, recent, ends, most, states)

    def place_request(self, token, slot, strands=()):
        """Send the request block of one token in the timeline itself."""
        self.grow(slot + 1)
        self._send((1, slot, 1), ((token,), (slot,), (0,), (0,), (0,)), strands=strands)
        self.wanted, self.fetched, self.answered = 0, -1, False

    def close(self):
        """Give back all device memory and the device."""
        if self.arriving is not None:
            self.arriving.drop()
        if self.decoder is not None:
            self.device.synchronize()
            self.decoder.close()
        for made in (self.query, self.drawer, self.experts, self.ring):
            if made is not None:
                made.close()
        for key in list(self.shapes):
            self._drop(key)
        if self.device is not None:
            for address in [*self.arenas.values(), *self.page_addresses, *self.place_addresses]:
                self.device.free(address)
        self.arenas.clear()
        self.page_addresses.clear()
        self.place_addresses.clear()
        self.gpu.close()
        for mapping in (self.host, self.request, self.answer):
            mapping.free()
