"""A Program as native steps: which kernel runs on which addresses, and where threads must wait for each other.

Each `_<op>` method turns one operation of the vocabulary into rows of the step table that kernels/host/execute.py
walks; operations that few families have are functions of further.py and experts.py. Linear steps take their input
quantized where the weight format has a vector kernel for it; the quantized twin of a buffer is made once and kept until the
buffer changes.

Barriers follow from the data: every step says how it divides what it reads and writes among threads; a step waits
only when a thread would touch what another thread wrote (or overwrite what another reads) since the last wait.
"""

from ..errors import InternalError, UnsupportedError
from ..quant.types import by_id, row_bytes
from .layers import facts

STEP_WORDS = 17  # kernel, barrier, 15 operands (kernels/host/execute.py)
QUANTIZED_GROUP = 960  # bytes per 256 quantized activations (kernels/dot.py)
ELSEWHERE = ("further", "experts", "latent", "weights", "recurrent")  # files of operations that few families have
ALL = "all"  # a thread may read everything
ONE = 0x3F800000  # 1.0 as float32 bits


def float_bits(value):
    """Bits of the float32 nearest to a Python float."""
    view = memoryview(bytearray(4)).cast("f")
    view[0] = value
    return view.cast("B").cast("I")[0]


def elsewhere(op):
    """What lowers an operation that few families have: f(lowering, step). UnsupportedError where nothing does."""
    for file in ELSEWHERE:
        lower = getattr(__import__(f"{__package__}.{file}", None, None, (op,)), op, None)
        if lower is not None:
            return lower
    raise UnsupportedError(f"the cpu backend has no operation {op!r}")


class Template:
    """The lowered steps of one layer, to be repeated for every layer that differs in addresses only."""

    __slots__ = ("facts", "relocations", "selected", "start", "stop")

    def __init__(self, facts, start, stop, relocations, selected):
        self.facts = facts  # see layers.py
        self.start = start  # words [start, stop) of the table
        self.stop = stop
        self.relocations = relocations  # (place from start, step within the layer, function of a step -> word)
        self.selected = selected  # buffers of wanted rows at the end


class Lowering:
    """Collects the step table. `memory` gives addresses: buffers, cells, caches (cpu.py)."""

    def __init__(self, library, file, program, memory):
        self.library = library
        self.file = file
        self.program = program
        self.memory = memory
        self.table = memory.table(3 * len(program.steps) + len(program.ropes))  # an operation takes at most three steps
        self.end = 0  # words used
        self.head = 0  # the native step that the head begins with
        self.written = {}  # buffer -> how it was divided when written since the last barrier
        self.read = {}  # buffer -> set of divisions it was read in since the last barrier
        self.quantized = set()  # buffers whose quantized twin is current
        self.selected = set()  # buffers that hold the wanted rows only
        self.entries = {}
        self.relocations = []  # of the steps lowered since the last `_wait`

    def lower(self):
        """Fill the table; returns the number of native steps."""
        self._angles()
        layers = self.program.layers
        self._lower(0, layers[0])
        templates = []
        for i in range(len(layers) - 1):
            first, last = layers[i], layers[i + 1]
            self._wait()
            own = facts(self.program.steps[first:last], self.file.tensors)
            template = next((t for t in templates if t.facts == own), None)
            if template is None:
                templates.append(self._record(own, first, last))
            else:
                self._instantiate(template, first)
        self._wait()
        self.head = self.end // STEP_WORDS
        self._lower(layers[-1], len(self.program.steps))
        self._wait()
        return self.end // STEP_WORDS

    def lower_apart(self):
        """Every operation by itself, with a wait behind it, so that a run can stop there: for each operation how many native steps
        have run once it has."""
        self._angles()
        ends = []
        for number in range(len(self.program.steps)):
            self._lower(number, number + 1)
            self._wait()
            ends.append(self.end // STEP_WORDS)
        return ends

    def _angles(self):
        """Sines and cosines of all rotary tables."""
        for i, rope in enumerate(self.program.ropes):
            pairs = len(rope.frequencies)
            m = self.memory
            row = (m.angles(i), m.frequencies(i), pairs, m.token_count, m.positions, m.magnitude(i))
            self.add("rope_angles", row, (), ((f"angles{i}", ("rows", False)),))

    def _lower(self, first, last):
        steps = self.program.steps
        for self.at in range(first, last):
            step = steps[self.at]
            lower = getattr(Lowering, "_" + step.op, None) or elsewhere(step.op)
            lower(self, step)

    def _wait(self):
        """All threads wait after the last step, so that nothing before it matters to what follows."""
        if self.end:
            self.table[self.end + 1 - STEP_WORDS] = 1
        self.written.clear()
        self.read.clear()
        self.quantized.clear()
        self.relocations = []

    def _record(self, own, first, last):
        start = self.end
        self._lower(first, last)
        relocations = [(place - start, at - first, word) for place, at, word in self.relocations]
        self._wait()
        return Template(own, start, self.end, relocations, set(self.selected))

    def _instantiate(self, template, first):
        table, steps, start = self.table, self.program.steps, self.end
        self.end += template.stop - template.start
        table[start : self.end] = table[template.start : template.stop]
        for place, k, word in template.relocations:
            table[start + place] = word(steps[first + k])
        self.selected = set(template.selected)

    # ---- the table ----

    def add(self, kernel, operands, reads, writes, relocations=()):
        """Append one native step. reads, writes: pairs (buffer, division); relocations: (operand, function of the step)."""
        if self._conflict(reads, writes):
            self.table[self.end + 1 - STEP_WORDS] = 1
            self.written.clear()
            self.read.clear()
        entry = self.entries.get(kernel)
        if entry is None:
            entry = self.entries[kernel] = self.library.address(kernel)
        for operand, word in relocations:
            self.relocations.append((self.end + 2 + operand, self.at, word))
        self.table[self.end] = entry
        for i, operand in enumerate(operands, self.end + 2):
            self.table[i] = operand
        self.end += STEP_WORDS
        for buffer, division in reads:
            self.read.setdefault(buffer, set()).add(division)
        for buffer, division in writes:
            self.written[buffer] = division
            self.quantized.discard(buffer)

    def _conflict(self, reads, writes):
        for buffer, division in reads:
            if self.written.get(buffer, division) != division:
                return True
        for buffer, division in writes:
            if self.written.get(buffer, division) != division:
                return True
            readers = self.read.get(buffer)
            if readers and (len(readers) > 1 or division not in readers):
                return True
        return False

    # ---- facts about buffers and tensors ----

    def rows(self, buffer):
        """(is it the wanted rows only, address of its row count)."""
        chosen = buffer in self.selected
        return chosen, self.memory.wanted_count if chosen else self.memory.token_count

    def mark(self, out, chosen):
        (self.selected.add if chosen else self.selected.discard)(out)

    def width(self, buffer):
        return self.program.widths[buffer]

    def tensor(self, name):
        return self.file.tensors[name]

    def norm_weights(self, step):
        """Address of the float32 weights of a norm, 0 where it has none."""
        return 0 if step.weights[0] is None else self.floats(step.weights[0])

    def matrix(self, step):
        """Address of the first weight row of a linear step."""
        tensor = self.file.tensors[step.weights[0]]
        if "rows" in step.args:
            return tensor.address + step.args["rows"][0] * row_bytes(tensor.type, tensor.shape[0])
        return tensor.address

    def bias_of(self, step):
        """Address of the float32 bias of a linear step, 0 where it has none."""
        if step.weights[1] is None:
            return 0
        return self.floats(step.weights[1]) + 4 * step.args.get("bias_row", 0)

    def floats(self, name):
        tensor = self.file.tensors[name]
        return tensor.address if tensor.type == 0 else self.memory.decoded(tensor)

    # ---- operations ----

    def _embed(self, step):
        tensor = self.tensor(step.weights[0])
        columns = tensor.shape[0]
        m = self.memory
        decoder = self.library.address("decode_" + by_id(tensor.type).name)
        factor = float_bits(step.args["scale"])
        row = (m.buffer(step.out), tensor.address, columns, m.token_count, row_bytes(tensor.type, columns), factor, m.ids, decoder)
        self.mark(step.out, False)
        self.add("embed", row, (), ((step.out, ("rows", False)),))

    def _rmsnorm(self, step):
        (source,), out, columns = step.ins, step.out, self.width(step.out)
        chosen, count = self.rows(source)
        m = self.memory
        eps = float_bits(step.args["eps"])
        row = (m.buffer(source), self.norm_weights(step), m.buffer(out), columns, count, 4 * columns, eps)
        division = ("rows", chosen)
        self.mark(out, chosen)
        self.add("rmsnorm", row, ((source, division),), ((out, division),), ((1, self.norm_weights),))

    def quantize(self, buffer):
        """Make the quantized twin of a buffer current; returns (address, bytes per row, name for hazards)."""
        columns, m = self.width(buffer), self.memory
        stride = (columns + 255) // 256 * QUANTIZED_GROUP
        twin = buffer + ".q8"
        if buffer not in self.quantized:
            chosen, count = self.rows(buffer)
            row = (m.buffer(buffer), m.quantized(buffer, stride), columns // 32, count, 4 * columns, stride)
            by_column = ("columns", columns)
            if self.written.get(buffer) == by_column:
                self.add("quantize_columns", row, ((buffer, by_column),), ((twin, by_column),))
            else:
                division = ("rows", chosen)
                self.add("quantize_rows", row, ((buffer, division),), ((twin, division),))
            self.quantized.add(buffer)
        return m.quantized(buffer, stride), stride, twin

    def product(self, tensor):
        """How rows of a tensor are multiplied: (kernel, whether it takes quantized input, groups, tail, decoder or 0)."""
        columns, name = tensor.shape[0], by_id(tensor.type).name
        kernel = "linear_q8_" + name
        if kernel in self.library:
            return self.library.variant(kernel), True, columns // 256, columns % 256 // 32, 0
        kernel, decoder = "linear_f32_" + name, 0
        if kernel not in self.library:
            kernel, decoder = "linear_decoded", self.library.address("decode_" + name)
        return kernel, False, columns // 64, columns % 64, decoder

    def _linear(self, step):
        (source,), out = step.ins, step.out
        tensor = self.tensor(step.weights[0])
        columns, rows = tensor.shape[0], tensor.shape[1]
        bytes_per_row = row_bytes(tensor.type, columns)
        if "rows" in step.args:
            rows = step.args["rows"][1]
        chosen, count = self.rows(source)
        m = self.memory
        kernel, quantized, groups, tail, decoder = self.product(tensor)
        if quantized:
            x, stride, read = self.quantize(source)
        else:
            x, stride, read = m.buffer(source), 4 * self.width(source), source
        scratch, scratch_bytes = m.linear_scratch()
        out_stride = 4 * self.width(out)
        row = (
            self.matrix(step), self.bias_of(step), x, m.buffer(out), groups, tail, rows, count, bytes_per_row, stride, out_stride,
            scratch, scratch_bytes, decoder, columns,
        )  # fmt: skip
        self.mark(out, chosen)
        relocations = ((0, self.matrix), (1, self.bias_of)) if step.weights[1] else ((0, self.matrix),)
        self.add(kernel, row, ((read, ALL),), ((out, ("columns", rows)),), relocations)

    def _heads(self, buffer, heads):
        chosen, count = self.rows(buffer)
        return ("heads", heads, chosen), chosen, count

    def over_heads(self, kernel, step):
        """A norm of every head of a buffer."""
        out, heads, m = step.out, step.args["heads"], self.memory
        division, _, count = self._heads(out, heads)
        w, eps, size = self.norm_weights(step), float_bits(step.args["eps"]), step.args["head_dim"]
        normed = min(size, self.tensor(step.weights[0]).elements) if step.weights[0] else size
        row = (m.buffer(out), w, heads, size, count, 4 * self.width(out), eps, normed)
        self.add(kernel, row, ((out, division),), ((out, division),), ((1, self.norm_weights),))

    def _head_rmsnorm(self, step):
        self.over_heads("head_rmsnorm", step)

    def _rope(self, step):
        out, heads, m = step.out, step.args["heads"], self.memory
        division, chosen, count = self._heads(out, heads)
        index = step.args["table"]
        rope = self.program.ropes[index]
        tokens = m.wanted if chosen else m.every
        neox = 1 if rope.style == "neox" else 0
        row = (
            m.buffer(out) + 4 * step.args.get("first", 0),
            m.angles(index),
            len(rope.frequencies),
            heads,
            step.args["head_dim"],
            count,
            4 * self.width(out),
            tokens,
            neox,
        )
        self.add("rope", row, ((out, division), (f"angles{index}", ALL)), ((out, division),))

    def _attention(self, step):
        q, *fresh = step.ins
        cache = f"cache{step.args['layer']}"
        division, chosen, _ = self._heads(q, step.args["heads"])
        own = ("heads", step.args["kv_heads"], False)
        row, relocations = (self._attention_block(step),), ((0, self._attention_block),)
        if fresh:  # else the cache is that of another layer
            self.add("append", row, tuple((buffer, own) for buffer in fresh), ((cache, own),), relocations)
        self.mark(step.out, chosen)
        self.add("attention", row, ((q, division), (cache, ALL)), ((step.out, division),), relocations)

    def _attention_block(self, step):
        """Address of the parameters of an attention step, made on first use."""
        m = self.memory
        known = m.blocks.get(step.args["layer"]) if len(step.ins) > 1 else None
        if known is not None:
            return known
        q, *fresh = step.ins
        chosen, count = self.rows(q)
        sinks = self.floats(step.weights[0]) if step.weights else 0
        new = [m.buffer(buffer) for buffer in fresh] or (0, 0)
        return m.attention_block(step.args, m.buffer(q), m.buffer(step.out), *new, count, chosen, sinks)

    def over_columns(self, kernel, buffer, other, parameter, *more):
        """A step over columns: buffer = f(buffer, other)."""
        columns, m = self.width(buffer), self.memory
        _, count = self.rows(buffer)
        division = ("columns", columns)
        row = (m.buffer(buffer), m.buffer(other), columns, count, 4 * columns, parameter, 4 * self.width(other), *more)
        self.add(kernel, row, ((buffer, division), (other, division)), ((buffer, division),))

    def _add(self, step):
        self.over_columns("add", step.out, step.ins[1], float_bits(step.args.get("scale", 1.0)))

    def _gated(self, step):
        kernel, limit = "gated_" + step.args["act"], step.args.get("limit")
        self.over_columns(kernel + "_limited" if limit else kernel, step.out, step.ins[1], float_bits(limit) if limit else ONE)

    def _scale(self, step):
        self.over_columns("scale", step.out, step.out, float_bits(step.args["factor"]))

    def _softcap(self, step):
        self.over_columns("softcap", step.out, step.out, float_bits(step.args["cap"]))

    def _select(self, step):
        buffer, columns, m = step.out, self.width(step.out), self.memory
        if buffer in self.selected:
            raise InternalError("rows are selected twice", where=buffer)
        self.mark(buffer, True)
        division = ("columns", columns)
        row = (m.buffer(buffer), m.wanted, columns, m.wanted_count, 4 * columns)
        self.add("select", row, ((buffer, division),), ((buffer, division),))
