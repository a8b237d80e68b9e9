"""A Program as native steps: which kernel runs on which addresses, and where threads must wait for each other.

Each `_<op>` method turns one operation of the vocabulary into rows of the step table that kernels/host/execute.py
walks. Linear steps take their input quantized where the weight format has a vector kernel for it; the quantized twin
of a buffer is made once and kept until the buffer changes.

Barriers follow from the data: every step says how it divides what it reads and writes among threads; a step waits
only when a thread would touch what another thread wrote (or overwrite what another reads) since the last wait.
"""

from ..errors import InternalError, UnsupportedError
from ..quant.types import by_id, row_bytes

STEP_WORDS = 17  # kernel, barrier, 15 operands (kernels/host/execute.py)
QUANTIZED_GROUP = 352  # bytes per 256 quantized activations (kernels/dot.py)
ALL = "all"  # a thread may read everything
ONE = 0x3F800000  # 1.0 as float32 bits


def float_bits(value):
    """Bits of the float32 nearest to a Python float."""
    view = memoryview(bytearray(4)).cast("f")
    view[0] = value
    return view.cast("B").cast("I")[0]


class Lowering:
    """Collects the step table. `memory` gives addresses: buffers, cells, caches (cpu.py)."""

    def __init__(self, library, file, program, memory):
        self.library = library
        self.file = file
        self.program = program
        self.memory = memory
        self.table = []
        self.written = {}  # buffer -> how it was divided when written since the last barrier
        self.read = {}  # buffer -> set of divisions it was read in since the last barrier
        self.quantized = set()  # buffers whose quantized twin is current
        self.selected = set()  # buffers that hold the wanted rows only
        self.entries = {}

    def lower(self):
        for i, rope in enumerate(self.program.ropes):
            pairs = len(rope.frequencies)
            m = self.memory
            row = (m.angles(i), m.frequencies(i), pairs, m.token_count, m.positions, m.magnitude(i))
            self._step("rope_angles", row, (), ((f"angles{i}", ("rows", False)),))
        for step in self.program.steps:
            lower = getattr(self, "_" + step.op, None)
            if lower is None:
                raise UnsupportedError(f"the cpu backend has no operation {step.op!r}")
            lower(step)
        return self.table

    # ---- the table ----

    def _step(self, kernel, operands, reads, writes):
        """Append one native step. reads, writes: pairs (buffer, division)."""
        if self._conflict(reads, writes):
            self.table[1 - STEP_WORDS] = 1
            self.written.clear()
            self.read.clear()
        entry = self.entries.get(kernel)
        if entry is None:
            entry = self.entries[kernel] = self.library.address(kernel)
        self.table += (entry, 0, *operands, *(0,) * (STEP_WORDS - 2 - len(operands)))
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

    def _rows(self, buffer):
        """(is it the wanted rows only, address of its row count)."""
        chosen = buffer in self.selected
        return chosen, self.memory.wanted_count if chosen else self.memory.token_count

    def _mark(self, out, chosen):
        (self.selected.add if chosen else self.selected.discard)(out)

    def _width(self, buffer):
        return self.program.widths[buffer]

    def _weights(self, name):
        return self.file.tensors[name]

    def _floats(self, name):
        """Address of a float32 vector tensor, or 0 for an absent one."""
        if name is None:
            return 0
        tensor = self._weights(name)
        if tensor.type != 0:
            return self.memory.decoded(tensor)
        return tensor.address

    # ---- operations ----

    def _embed(self, step):
        tensor = self._weights(step.weights[0])
        columns = tensor.shape[0]
        m = self.memory
        decoder = self.library.address("decode_" + by_id(tensor.type).name)
        factor = float_bits(step.args["scale"])
        row = (m.buffer(step.out), tensor.address, columns, m.token_count, row_bytes(tensor.type, columns), factor, m.ids, decoder)
        self._mark(step.out, False)
        self._step("embed", row, (), ((step.out, ("rows", False)),))

    def _rmsnorm(self, step):
        (source,), out, columns = step.ins, step.out, self._width(step.out)
        chosen, count = self._rows(source)
        m = self.memory
        row = (
            m.buffer(source),
            self._floats(step.weights[0]),
            m.buffer(out),
            columns,
            count,
            4 * columns,
            float_bits(step.args["eps"]),
        )
        division = ("rows", chosen)
        self._mark(out, chosen)
        self._step("rmsnorm", row, ((source, division),), ((out, division),))

    def _quantize(self, buffer):
        """Make the quantized twin of a buffer current; returns (address, bytes per row, name for hazards)."""
        columns, m = self._width(buffer), self.memory
        stride = (columns + 255) // 256 * QUANTIZED_GROUP
        twin = buffer + ".q8"
        if buffer not in self.quantized:
            chosen, count = self._rows(buffer)
            row = (m.buffer(buffer), m.quantized(buffer, stride), columns // 32, count, 4 * columns, stride)
            by_column = ("columns", columns)
            if self.written.get(buffer) == by_column:
                self._step("quantize_columns", row, ((buffer, by_column),), ((twin, by_column),))
            else:
                division = ("rows", chosen)
                self._step("quantize_rows", row, ((buffer, division),), ((twin, division),))
            self.quantized.add(buffer)
        return m.quantized(buffer, stride), stride, twin

    def _linear(self, step):
        (source,), out = step.ins, step.out
        tensor = self._weights(step.weights[0])
        columns, rows = tensor.shape[0], tensor.shape[1]
        bytes_per_row = row_bytes(tensor.type, columns)
        weights, bias = tensor.address, self._floats(step.weights[1])
        part = step.args.get("rows")
        if part:
            weights += part[0] * bytes_per_row
            rows = part[1]
            if bias:
                bias += 4 * step.args["bias_row"]
        name = by_id(tensor.type).name
        chosen, count = self._rows(source)
        m, decoder = self.memory, 0
        kernel = "linear_q8_" + name
        if kernel in self.library:
            x, stride, read = self._quantize(source)
            groups, tail = columns // 256, columns % 256 // 32
        else:
            x, stride, read = m.buffer(source), 4 * self._width(source), source
            groups, tail = columns // 64, columns % 64
            kernel = "linear_f32_" + name
            if kernel not in self.library:
                kernel, decoder = "linear_decoded", self.library.address("decode_" + name)
        scratch, scratch_bytes = m.linear_scratch()
        out_stride = 4 * self._width(out)
        row = (
            weights, bias, x, m.buffer(out), groups, tail, rows, count, bytes_per_row, stride, out_stride,
            scratch, scratch_bytes, decoder, columns,
        )  # fmt: skip
        self._mark(out, chosen)
        self._step(kernel, row, ((read, ALL),), ((out, ("columns", rows)),))

    def _heads(self, buffer, heads):
        chosen, count = self._rows(buffer)
        return ("heads", heads, chosen), chosen, count

    def _head_rmsnorm(self, step):
        out, heads, m = step.out, step.args["heads"], self.memory
        division, _, count = self._heads(out, heads)
        w, eps = self._floats(step.weights[0]), float_bits(step.args["eps"])
        row = (m.buffer(out), w, heads, step.args["head_dim"], count, 4 * self._width(out), eps)
        self._step("head_rmsnorm", row, ((out, division),), ((out, division),))

    def _rope(self, step):
        out, heads, m = step.out, step.args["heads"], self.memory
        division, chosen, count = self._heads(out, heads)
        index = step.args["table"]
        rope = self.program.ropes[index]
        tokens = m.wanted if chosen else m.every
        neox = 1 if rope.style == "neox" else 0
        row = (
            m.buffer(out),
            m.angles(index),
            len(rope.frequencies),
            heads,
            step.args["head_dim"],
            count,
            4 * self._width(out),
            tokens,
            neox,
        )
        self._step("rope", row, ((out, division), (f"angles{index}", ALL)), ((out, division),))

    def _attention(self, step):
        q, k, v = step.ins
        a, m = step.args, self.memory
        layer = a["layer"]
        division, chosen, count = self._heads(q, a["heads"])
        block = m.attention_block(layer, a, m.buffer(q), m.buffer(step.out), m.buffer(k), m.buffer(v), count, chosen)
        cache = f"cache{layer}"
        own = ("heads", a["kv_heads"], False)
        self._step("append", (block,), ((k, own), (v, own)), ((cache, own),))
        self._mark(step.out, chosen)
        self._step("attention", (block,), ((q, division), (cache, ALL)), ((step.out, division),))

    def _columns(self, kernel, buffer, other, parameter):
        """A step over columns: buffer = f(buffer, other)."""
        columns, m = self._width(buffer), self.memory
        _, count = self._rows(buffer)
        division = ("columns", columns)
        reads = [(buffer, division)]
        address = stride = 0
        if other is not None:
            address, stride = m.buffer(other), 4 * self._width(other)
            reads.append((other, division))
        row = (m.buffer(buffer), address, columns, count, 4 * columns, parameter, stride)
        self._step(kernel, row, reads, ((buffer, division),))

    def _add(self, step):
        self._columns("add", step.out, step.ins[1], float_bits(step.args.get("scale", 1.0)))

    def _gated(self, step):
        self._columns("gated_" + step.args["act"], step.out, step.ins[1], ONE)

    def _scale(self, step):
        self._columns("scale", step.out, None, float_bits(step.args["factor"]))

    def _softcap(self, step):
        self._columns("softcap", step.out, None, float_bits(step.args["cap"]))

    def _select(self, step):
        buffer, columns, m = step.out, self._width(step.out), self.memory
        if buffer in self.selected:
            raise InternalError("rows are selected twice", where=buffer)
        self._mark(buffer, True)
        division = ("columns", columns)
        row = (m.buffer(buffer), m.wanted, columns, m.wanted_count, 4 * columns)
        self._step("select", row, ((buffer, division),), ((buffer, division),))
