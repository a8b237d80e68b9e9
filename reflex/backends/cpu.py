"""The cpu backend: a Program lowered to ahead-of-time compiled kernels over the mapped file.

A Plan owns the memory (activation buffers, key/value cache, step table) and the worker threads of one loaded model.
The calling thread computes too; workers sleep between evaluations. Nothing here imports numpy or numba.
"""

import _thread
from posix import getpid

from .. import native
from ..errors import ContextOverflowError, InternalError, InvalidInputError, OutOfMemoryError, StateError
from ..program.records import BATCH, PLACES
from ..quant.types import by_id
from .layers import checked, lists_of_runs
from .lowering import STEP_WORDS, Lowering, float_bits

LOGITS_BYTES = 32 << 20  # of the rows of logits that lie in memory at once
SLOTS = 32  # cache slots per key block (kernels/host/attention.py)
LINE = 64
SYSCALL_WORD, FUTEX_WORD = 32, 33  # of the team block (kernels/host/execute.py)
FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98}
MADV_NOHUGEPAGE = 15


class Memory:
    """Addresses for a Lowering. Everything is lazily touched: what a run does not use costs no memory."""

    def __init__(self, library, program, context, threads):
        self.library = library
        self.program = program
        self.capacity = (context + SLOTS - 1) // SLOTS * SLOTS
        self.rows = min(BATCH, self.capacity)
        self.logits_rows = max(1, min(self.rows, LOGITS_BYTES // (4 * program.vocabulary)))
        self.threads = threads
        self.maps = []
        self.bytes = 0  # of all buffers
        self.places = {}  # name -> address
        self.pinned = []
        self.blocks = {}  # layer, or the words -> address of parameters
        cells = self._reserve("cells", 8 * (8 + 5 * self.rows))
        self.token_count, self.wanted_count, self.batch = cells, cells + 8, cells + 16  # batch: 5 words, see attention.py
        rows = self.rows
        self.positions = cells + 64
        self.shared = self.positions + 8 * rows
        self.branch = self.shared + 8 * rows
        self.wanted = self.branch + 8 * rows  # token index of each wanted row
        self.every = self.wanted + 8 * rows  # 0, 1, 2, ...
        self.ids = self._reserve("ids", 4 * rows)
        words = native.view(self.batch, 4, "q")
        words[0], words[1], words[2] = self.positions, self.shared, self.branch
        every = native.view(self.every, rows, "q")
        for i in range(rows):
            every[i] = i
        self._scratch = self._reserve("attention scratch", threads * self._attention_bytes())
        self.caches = self._cache_places()
        if program.states:
            from .recurrent import reserve

            reserve(self)

    def _reserve(self, name, size):
        mapping = native.alloc(size, name)
        native.libc("madvise", 3)(mapping.address, mapping.size, MADV_NOHUGEPAGE)
        self.maps.append(mapping)
        self.bytes += size
        self.places[name] = mapping.address
        return mapping.address

    def _named(self, name, size):
        address = self.places.get(name)
        return self._reserve(name, size) if address is None else address

    def table(self, steps, name="step table"):
        """Room for a step table, as a view of int64."""
        return native.view(self._reserve(name, 8 * STEP_WORDS * steps), STEP_WORDS * steps, "q")

    def buffer(self, name):
        address = self.places.get(name)
        if address is None:
            rows = self.logits_rows if name == "logits" else self.rows
            address = self._reserve(name, 4 * rows * self.program.widths[name])
        return address

    def quantized(self, name, stride):
        return self._named(name + ".q8", stride * self.rows)

    def angles(self, index):
        return self._named(f"angles {index}", 8 * self.rows * len(self.program.ropes[index].frequencies))

    def frequencies(self, index):
        """float64: the frequencies of a rotary table, then its magnitude."""
        name, rope = f"frequencies {index}", self.program.ropes[index]
        address = self.places.get(name)
        if address is None:
            count = len(rope.frequencies)
            address = self._reserve(name, 8 * (count + 1))
            words = native.view(address, count + 1, "d")
            for i, frequency in enumerate(rope.frequencies):
                words[i] = frequency
            words[count] = rope.magnitude
        return address

    def magnitude(self, index):
        return self.frequencies(index) + 8 * len(self.program.ropes[index].frequencies)

    def scratch(self, name, size):
        """(address, bytes per thread): room for `size` bytes and more for each thread."""
        size = (size + LINE) & -LINE
        return self._named(f"{name} scratch {size}", self.threads * size), size

    def linear_scratch(self):
        """(address, bytes per thread): room for one row of weights expanded to float32."""
        return self.scratch("linear", 4 * max(self.program.widths.values()))

    def sampling_heap(self):
        return self._named("sampling heap", 16 * self.program.vocabulary)

    def decoded(self, tensor):
        """A float32 copy of a small tensor that is stored in another type (norm weights, biases)."""
        name = "decoded " + tensor.name
        address = self.places.get(name)
        if address is None:
            address = self._reserve(name, 4 * tensor.elements)
            getattr(self.library, "decode_" + by_id(tensor.type).name)(tensor.address, address, tensor.elements)
        return address

    def _attention_bytes(self):
        return (4 * (SLOTS + self.capacity + SLOTS) + LINE) & -LINE

    def _cache_places(self):
        """[(keys, values)] per layer, in one reservation."""
        offsets, size = [], 0
        for heads, key_dim, value_dim in self.program.caches:
            offsets.append((size, size + 4 * heads * key_dim * self.capacity))
            size += 4 * heads * (key_dim + value_dim) * self.capacity
        base = self._reserve("key/value cache", size)
        return [(base + keys, base + values) for keys, values in offsets]

    def attention_block(self, args, queries, out, keys, values, rows, chosen, sinks):
        """A parameter block for the attention step of one layer; order as in kernels/slots.py."""
        cache_keys, cache_values = self.caches[args["layer"]]
        window = args["window"] or -args.get("chunk", 0)
        words = (
            queries, out, cache_keys, cache_values, args["heads"], args["kv_heads"], args["key_dim"], args["value_dim"],
            self.capacity, float_bits(args["scale"]), window, float_bits(args["softcap"] or 0.0), rows,
            self.wanted if chosen else self.every, self.batch, self._scratch, self._attention_bytes(), keys, values,
            self.token_count, sinks,
        )  # fmt: skip
        if not keys:  # of a layer that reads the cache of another: the block is not the only one of that cache
            return self.constants(words)
        address = self.blocks[args["layer"]] = self.pin(words)
        return address

    def constants(self, words):
        """Address of the parameters `words`, the same for the same ones."""
        address = self.blocks.get(words)
        if address is None:
            address = self.blocks[words] = self.pin(words)
        return address

    def pin(self, words):
        """Address of a copy of some int64 that lives as long as this."""
        block = (native.Int64 * len(words))(*words)
        self.pinned.append(block)
        return native.address_of(block)

    def free(self):
        for mapping in self.maps:
            mapping.free()
        self.maps.clear()


class Team:
    """The worker threads of a plan: started on first use, asleep between evaluations."""

    def __init__(self, library, threads):
        self.library = library
        self.threads = threads
        self.block = None
        self.running = []
        self.turn = _thread.allocate_lock()
        self.process = 0  # that the workers are threads of

    def start(self):
        self.process, worker = getpid(), self.library.worker
        self.block = native.alloc(4096, "thread team")
        words = native.view(self.block.address, 64, "q")
        words[SYSCALL_WORD] = native.libc_address("syscall")
        words[FUTEX_WORD] = FUTEX_NUMBERS[native.machine()]
        for _ in range(1, self.threads):
            done = _thread.allocate_lock()
            done.acquire()
            try:
                native.start_thread(self._serve, (worker, self.block.address), "cpu backend", done)
            except OutOfMemoryError:
                self.close()
                raise
            self.running.append(done)

    def _serve(self, worker, block):
        native.watch_thread()
        worker(block, self.threads)

    def execute(self, table, count):
        """Run `count` native steps from the address `table` on. StateError where another thread does, or after a fork."""
        if self.threads > 1 and self.block is None:
            self.start()
        if self.block and getpid() != self.process:
            raise StateError("the model was loaded before this process forked", where="cpu backend", remedy="load it in the child")
        if not self.turn.acquire(False):
            remedy = "load the model once per thread, or take turns with a lock"
            raise StateError("another thread is computing with this model", where="cpu backend", remedy=remedy)
        try:
            self.library.execute(table, count, self.block.address if self.block else 0, self.threads)
        finally:
            self.turn.release()

    def close(self):
        if self.block is not None and getpid() == self.process:
            self.library.dismiss(self.block.address)
            for done in self.running:
                done.acquire()
            self.running.clear()
            self.block.free()
            self.block = None


class Plan:
    """A Program ready to run. Interface shared with the other backends; see `evaluate`."""

    name = "cpu"
    steady = True  # every batch is
    batch = BATCH

    def __init__(self, file, program, context, threads=1):
        self.file = file
        self.program = program
        self.context = context
        self.vocabulary = program.vocabulary
        self.library = native.library()
        self.memory = Memory(self.library, program, context, threads)
        lowering = Lowering(self.library, file, program, self.memory)
        self.steps = lowering.lower()
        self.head = lowering.head  # the native step that makes logits of the states of wanted rows
        self.most_outputs = self.memory.rows
        self.places = PLACES if program.states else 0
        self.team = Team(self.library, threads)
        self.wanted = self.first = 0  # wanted rows; the one whose logits come first in memory
        self.lists, self.states = None, b""

    def evaluate(self, ids, first_slot, positions, shared, branch, outputs, runs=(), steady=True, strands=()):
        """Compute the tokens `ids` of one batch and the logits of its rows `outputs` (ascending).

        Token i goes to cache slot first_slot + i with rope position positions[i]; it sees the slots [0, shared[i]), those of
        the pairs (first, end) in runs[i] (none: no token has any) and [branch[i], first_slot + i]. `steady`: results
        must not depend on the number of tokens, to the bit; here they never do. `strands`, of a program with states: runs of rows
        (first row, count, source, destination) that follow each other in one text, in the order of computing; `source` is the place
        of the state before them (-1: the beginning of a text), `destination` that for the one behind them (-1: none).
        Errors: ContextOverflowError past the cache, InvalidInputError for ids outside the vocabulary.
        """
        self.begin(ids, first_slot, positions, shared, branch, outputs, runs, strands)
        whole = self.wanted <= self.memory.logits_rows
        self.team.execute(self.memory.places["step table"], self.steps if whole else self.head)
        if not whole:
            self.finish()

    def begin(self, ids, first_slot, positions, shared, branch, outputs, runs=(), strands=()):
        """Take up a batch: whoever then runs the steps before the head, and `finish`, did what `evaluate` does."""
        memory, count = self.memory, len(ids)
        if first_slot + count > self.context:
            raise ContextOverflowError(
                "the context is full", f"at most {self.context} tokens", first_slot + count, remedy="raise --ctx"
            )
        if not 0 < count <= memory.rows:
            raise InternalError("a batch has the wrong size", f"1 to {memory.rows} tokens", count)
        embedded = self.file.tensors[self.program.steps[0].weights[0]].shape[1]
        if min(ids) < 0 or max(ids) >= embedded:
            raise InvalidInputError("a token id is outside the vocabulary", f"0 to {embedded - 1}", f"{min(ids)} to {max(ids)}")
        if self.places:
            self._fill(memory.places["strands"], checked(strands, count), "q")
        self._fill(memory.ids, ids, "I")
        self._fill(memory.positions, positions, "q")
        self._fill(memory.shared, shared, "q")
        self._fill(memory.branch, branch, "q")
        self._fill(memory.wanted, outputs, "q")
        counts = native.view(memory.token_count, 7, "q")
        counts[0], counts[1], counts[5] = count, len(outputs), first_slot
        self.lists = lists_of_runs(runs) if runs else None  # lives as long as the kernels may read it
        counts[6] = native.address_of(self.lists) if runs else 0
        self.wanted, self.first = len(outputs), 0

    def finish(self):
        """Make logits of the states that the layers left."""
        self.states = native.bytes_at(self.memory.buffer(self._state()), self._state_bytes() * self.wanted)
        self._make_logits(0)

    def _state(self):
        """The buffer that the head reads."""
        return self.program.steps[self.program.layers[-1]].ins[0]

    def _state_bytes(self):
        return 4 * self.program.widths[self._state()]

    def _make_logits(self, first):
        """Logits of the wanted rows from `first` on, as many as the buffer holds."""
        memory, size = self.memory, self._state_bytes()
        count = min(memory.logits_rows, self.wanted - first)
        native.view(memory.buffer(self._state()), count * size)[:] = memoryview(self.states)[first * size : (first + count) * size]
        native.view(memory.wanted_count, 1, "q")[0] = count
        self.team.execute(memory.places["step table"] + 8 * STEP_WORDS * self.head, self.steps - self.head)
        self.first = first

    @staticmethod
    def _fill(address, values, code):
        view = native.view(address, len(values), code)
        for i, value in enumerate(values):
            view[i] = value

    def _row(self, row):
        """Address of the logits of wanted row `row`, which are computed now where they did not fit in memory."""
        if not 0 <= row < self.wanted:
            raise InternalError("no such row of logits", f"0 to {self.wanted - 1}", row)
        most = self.memory.logits_rows
        if not self.first <= row < self.first + most:
            self._make_logits(row - row % most)
        return self.memory.buffer("logits") + 4 * self.vocabulary * (row - self.first)

    def logits(self, row):
        """float32[vocabulary] of wanted row `row`, valid until the next evaluation or, where not all rows fit in LOGITS_BYTES,
        until another row is asked for."""
        return native.view(self._row(row), self.vocabulary, "f")

    def logprobs(self, row, token_ids):
        """log-softmax over the full vocabulary at the given ids."""
        return self.logprobs_of_rows((row,), (token_ids,))[0]

    def logprobs_of_rows(self, rows, ids):
        """[logprobs(row, ids of that row)]; rows that ascend without a gap are computed together."""
        found, begin = [], 0
        for end in range(1, len(rows) + 1):
            last = end == len(rows)
            if last or rows[end] != rows[end - 1] + 1 or rows[end] % self.memory.logits_rows == 0:
                found += self._logprobs(self._row(rows[begin]), ids[begin:end])
                begin = end
        return found

    def _logprobs(self, logits, ids):
        """Log-probabilities of the ids of each row of logits from that address on, divided among the threads."""
        count, starts, flat = len(ids), [0], []
        for own in ids:
            flat += own
            starts.append(len(flat))
        if flat and (min(flat) < 0 or max(flat) >= self.vocabulary):
            raise InvalidInputError("a token id is outside the vocabulary", f"0 to {self.vocabulary - 1}", max(flat))
        block = (native.Int64 * (STEP_WORDS + count + 1 + 2 * len(flat)))()
        step = native.address_of(block)
        words = native.view(step, len(block), "q")
        at = step + 8 * STEP_WORDS
        results = at + 8 * (count + 1 + len(flat))
        operands = logits, self.vocabulary, count, at, at + 8 * (count + 1), results
        for i, value in enumerate((self.library.address("logprobs_of_rows"), 1, *operands)):
            words[i] = value
        for i, value in enumerate((*starts, *flat), STEP_WORDS):
            words[i] = value
        self.team.execute(step, 1)
        values = native.view(results, len(flat), "d").tolist() if flat else []
        return [values[starts[i] : starts[i + 1]] for i in range(count)]

    def argmax(self, row):
        return self.library.argmax(self._row(row), self.vocabulary)

    def sample(self, row, temperature, top_k, top_p, min_p, random):
        """A token id drawn with `random` in [0, 1), -1 where its logit is no number; kernels/host/sample.py orders the filters."""
        bits = (native.Double * 5)(temperature, top_p, min_p, random, 0.0)
        logits, heap = self._row(row), self.memory.sampling_heap()
        token = self.library.sample(logits, self.vocabulary, top_k or 0, native.address_of(bits), heap)
        value = native.view(logits + 4 * token, 1, "f")[0]
        return token if value - value == 0 else -1

    def store(self):
        """What reads and writes the memory of earlier tokens, for state files; see sections.py."""
        from .cpu_state import Store

        return Store(self)

    def close(self):
        """End the workers and free the memory."""
        self.team.close()
        self.memory.free()
