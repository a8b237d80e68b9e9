"""One operation of the vocabulary on the cpu backend, with the operands that its own file describes.

Builds a Program of a single step over tensors in plain memory, lowers it as any model is lowered, and runs it on the
calling thread. Called by the kernel tests and benchmarks. Refuses nothing: cases come from reflex/ops.
"""

from math import prod

import numpy

from reflex import native, ops, quant
from reflex.backends.cpu import Memory
from reflex.backends.layers import checked, lists_of_runs
from reflex.backends.lowering import Lowering
from reflex.backends.recurrent import state_of
from reflex.gguf.header import Tensor
from reflex.program.records import Program, Rope, Step
from reflex.quant.types import by_name, row_bytes

UNCACHED = 192 << 20  # bytes of weights that no last-level cache keeps between two runs


MATRICES = (
    ("linear", 2),
    ("expert_linear", 3),
    ("head_linear", 3),
)  # operation and dimensions of the weights that may lie in any block format


class File:
    """What a Lowering reads of a model file: its tensors."""

    def __init__(self):
        self.tensors = {}
        self.maps = []

    def add(self, name, block, shape, data, copies=1):
        """A tensor of that shape, columns first, whose bytes are `data`, several times over at different addresses."""
        size = prod(shape[1:]) * row_bytes(block.id, shape[0])
        mapping = native.alloc(size * copies, name)
        self.maps.append(mapping)
        for copy in range(copies):
            put(mapping.address + copy * size, data, "uint8")
        self.tensors[name] = Tensor(name, block.id, shape, mapping.address, size, prod(shape))


def random_blocks(block, count, random):
    """Bytes of `count` elements: rounded normal numbers where the format is plain, else any blocks of moderate numbers."""
    if block.name == "F16":
        return random.standard_normal(count, "float32").astype("float16").view(numpy.uint8)
    if block.name == "BF16":
        return (random.standard_normal(count, "float32").view(numpy.uint32) >> 16).astype("uint16").view(numpy.uint8)
    blocks = random.integers(0, 256, (4 * (count // block.elements) + 64, block.nbytes), "uint8")
    with numpy.errstate(all="ignore"):
        largest = numpy.abs(quant.load(block.name).decode(blocks)).max(axis=1)
    usable = blocks[(largest > 1e-3) & (largest < 1e3)]
    return usable[random.integers(0, len(usable), count // block.elements)].ravel()


def put(address, values, kind):
    """Write an array or sequence of numbers of one kind to an address."""
    values = numpy.asarray(values, kind)
    numpy.frombuffer(native.view(address, values.nbytes), kind)[:] = values


class OneStep:
    """`run()` executes the operation once; `nbytes` counts what it reads or writes once, `macs` the products of a linear step."""

    def __init__(self, op, case, format="F32", library=None, copies=None):
        self.library = library or native.library()
        self.file = File()
        self.macs = 0
        random = numpy.random.default_rng(1)
        module = ops.find(op)
        arrays, words = module.inputs(case, random)
        ins, rows = len(module.OPERANDS["ins"]), case["rows"]
        self.arrays, self.words, self.rows = arrays, words, rows
        program = self._program(op, module, arrays[:ins], words)
        copies = self._weights(op, case, arrays[ins:], by_name(format), random, copies)
        out = program.steps[0].out
        if out not in program.widths:
            program.widths[out] = module.reference(*arrays, **words).shape[1]
        tokens = words["slots"][-1] + 1 if "slots" in words else rows
        self.memory = Memory(self.library, program, tokens, 1)
        self.tables = [self._table(program, copy) for copy in range(copies)]
        self.turn = 0
        if "slots" in words:
            self._earlier(arrays[1:ins], words["slots"][0])
        for name, array in zip(program.steps[0].ins, arrays[:ins], strict=True):
            put(self.memory.buffer(name), array[-rows:].ravel(), "float32")
        if "states" in words:
            put(state_of(self.memory, 0), words["states"].ravel(), "float32")
        self._fill_cells(rows, words)
        moved = len(words["outputs"]) if "outputs" in words else rows
        tables = 0 if op == "embed" else sum(tensor.nbytes for tensor in self.file.tensors.values())
        self.nbytes = tables + sum(4 * moved * width for width in program.widths.values())

    def _program(self, op, module, arrays, words):
        """The program of the step; in place where the operation is."""
        outer = module.OPERANDS
        program = Program("bench", 64, 4096, 64)
        names = [text.split()[0] for text in outer["ins"]]
        for name, array in zip(names, arrays, strict=True):
            program.widths[name] = array.shape[1]
        out = outer["out"].split()[0]
        state = {text.split(":")[0] for text in outer["state"]}
        state |= {"positions", "shared", "branch", "runs", "slots", "ids", "outputs", "states", "strands"}
        args = {name: value for name, value in words.items() if name not in state}
        if "rope" in words:
            program.ropes.append(Rope(words["rope"].frequencies, words["rope"].magnitude, words["rope"].style))
            args["table"] = 0
        if op == "attention":
            program.caches.append((args["kv_heads"], args["key_dim"], args["value_dim"]))
            program.widths[out] = args["heads"] * args["value_dim"]
            args["layer"] = 0
        if op == "latent_attention":
            program.caches.append((1, args["key_dim"], 0))
            args["layer"] = 0
        if "states" in words:
            args["state"] = program.state(words["states"].shape[1])
            program.widths[out] = words.get("heads", 1) * words.get("value_dim", words.get("head_dim", arrays[0].shape[1]))
        weights = tuple(text.split()[0] for text in outer["weights"])
        program.steps.append(Step(op, out, tuple(names), weights, args))
        program.layers.append(1)
        self.program = program
        return program

    def _weights(self, op, case, arrays, block, random, wanted):
        """Put the weights into the file; returns how many copies a run takes in turn (None: enough to leave the caches)."""
        step, plain, copies = self.program.steps[0], by_name("F32"), 1
        step.weights = step.weights[: len(arrays)]  # a last one that is optional may be absent
        for name, array in zip(step.weights, arrays, strict=True):
            if array is None:
                step.weights = tuple(None if w == name else w for w in step.weights)
                continue
            shape = array.shape[::-1]
            if (op, array.ndim) in MATRICES:
                size = array.size // shape[0] * row_bytes(block.id, shape[0])
                copies = wanted or max(1, UNCACHED // size)
                self.blocks = array.ravel().view(numpy.uint8) if block is plain else random_blocks(block, array.size, random)
                self.file.add(name, block, shape, self.blocks, copies)
                made = step.args.get("used", 1) * step.args.get("rows", (0, shape[1]))[1]
                self.macs = case["rows"] * made * shape[0]
                if op != "head_linear":  # whose output holds more than products
                    self.program.widths[step.out] = made
            else:
                self.file.add(name, plain, shape, array.ravel().view(numpy.uint8))
        return copies

    def _fill_cells(self, rows, words):
        m = self.memory
        wanted = list(words.get("outputs", range(rows)))
        zeros = [0] * rows
        put(m.ids, words.get("ids", zeros), "uint32")
        put(m.positions, words.get("positions", range(rows)), "int64")
        put(m.shared, words.get("shared", zeros), "int64")
        put(m.branch, words.get("branch", zeros), "int64")
        put(m.wanted, wanted, "int64")
        counts = native.view(m.token_count, 7, "q")
        counts[0], counts[1], counts[5] = rows, len(wanted), words.get("slots", [0])[0]
        if "strands" in words:
            put(m.strands, checked(words["strands"], rows), "int64")
        self.lists = lists_of_runs(words["runs"]) if "runs" in words else None
        counts[6] = native.address_of(self.lists) if self.lists else 0

    def _table(self, program, copy):
        """The native steps over copy number `copy` of the weights."""
        moved = [(tensor, tensor.address) for tensor in self.file.tensors.values()]
        for tensor, address in moved:
            tensor.address = address + copy * tensor.nbytes
        steps = Lowering(self.library, self.file, program, self.memory).lower()
        for tensor, address in moved:
            tensor.address = address
        return self.memory.places["step table"], steps

    def _earlier(self, cached, count):
        """Let the cache hold the first `count` slots, as an evaluation of those tokens would have left it."""
        if count:
            for name, array in zip(self.program.steps[0].ins[1:], cached, strict=True):
                put(self.memory.buffer(name), array[:count].ravel(), "float32")
            self._fill_cells(count, {"slots": [0]})
            self.run()

    def fill(self, *ins):
        """Make `ins`, each [rows, columns], the inputs of the next run."""
        self.rows = len(ins[0])
        for name, array in zip(self.program.steps[0].ins, ins, strict=True):
            put(self.memory.buffer(name), array.ravel(), "float32")
        self._fill_cells(self.rows, {})

    def run(self):
        table, steps = self.tables[self.turn % len(self.tables)]
        self.turn += 1
        self.library.execute(table, steps, 0, 1)

    def result(self):
        """The rows of the output buffer, a copy."""
        step = self.program.steps[0]
        columns = self.program.widths[step.out]
        rows = len(self.words["outputs"]) if "outputs" in self.words else self.rows
        found = native.view(self.memory.buffer(step.out), rows * columns, "f")
        return numpy.array(found).reshape(rows, columns)

    def states(self):
        """What the first places hold, [places, numbers]; None for an operation without a state."""
        if "states" not in self.words:
            return None
        places, numbers = self.words["states"].shape
        return numpy.array(native.view(state_of(self.memory, 0), places * numbers, "f")).reshape(places, numbers)

    def close(self):
        self.memory.free()
        for mapping in self.file.maps:
            mapping.free()
