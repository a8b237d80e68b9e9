"""A Program as launches: which kernel runs on which addresses, for a batch of a given size.

`lowering(program)(...).lower()` appends the launches of one evaluation to a chain (launch.py). Fused records (fusion.py)
choose their kernel by the number of rows and by the block formats they meet (products.py, experts.py, attention.py); each
kernel's parameters are described in its own file under reflex/kernels/cuda. Layers that repeat are copied with their addresses
replaced.
"""

from ...errors import UnsupportedError
from ...program.records import BATCH
from ...quant.types import by_id
from ..layers import facts
from .attention import AttentionLaunches, least_shared_bytes
from .fusion import fuse, unit_of
from .parameters import COLUMNS, blocks
from .products import Products

IN_RECORDS = ("linear", "attention")  # operations that fusion always gathers into a record
MOST_DIMENSIONS = 512  # of a key or a value
UNARY_PARAMETERS = 4  # that kernels/cuda/unary.py takes for any activation


class Template:
    """The launches of one layer."""

    __slots__ = ("changes", "facts", "start", "steps", "stops")

    def __init__(self, facts, start, steps, changes, stops):
        self.facts = facts  # see layers.py
        self.start = start  # chain rows
        self.steps = steps
        self.changes = changes  # (row, parameter, step within the layer, word)
        self.stops = stops  # as in Batch, with the step within the layer


class Lowering(Products, AttentionLaunches):
    """Adds the launches of one evaluation of `rows` tokens, `wanted` of them with logits."""

    in_records = ()  # operations beside IN_RECORDS that are never by themselves

    def lower(self):
        """Append every launch; returns the (first, last) rows of the chain and, of programs with experts, the stops."""
        begin = len(self.chain)
        program = self.program
        for i, rope in enumerate(program.ropes):
            self._rope_angles(i, rope)
        bounds = [0, *program.layers, len(program.steps)]
        templates = []
        for number in range(len(bounds) - 1):
            first, last = bounds[number], bounds[number + 1]
            inner = 0 < number < len(bounds) - 2
            keeps_rows = self.rows == self.wanted or not any(s.op == "select" for s in program.steps[first:last])
            if inner and keeps_rows:
                own = facts(program.steps[first:last], self.file.tensors)
                known = next((t for t in templates if t.facts == own), None)
                if known:
                    self._copy(known, first)
                    continue
                templates.append(self._record(first, last, own))
            else:
                self._lower(first, last)
        self._stats()
        return begin, len(self.chain), self.stops

    def _stats(self):
        """Largest logit, its id and the sum of exponentials of every wanted row."""
        m, columns = self.memory, self.program.vocabulary
        parts = blocks(columns, COLUMNS)
        partials = m.of_wanted("stats partials", self.wanted, 16 * parts)
        counters = m.zeros("stats counters", 4 * m.rows)
        values = self._at("logits")[0], m.stats_of(self.wanted), partials, counters, columns
        self._add("logits_stats", (parts, self.wanted), values)

    def _lower(self, first, last):
        for record in fuse(self.program.steps[first:last], self.rows != self.wanted):
            getattr(self, "_" + type(record).__name__.lower())(record)

    def _record(self, first, last, own):
        self.own = []
        start, stopped = len(self.chain), len(self.stops)
        self._lower(first, last)
        places = {id(step): k for k, step in enumerate(self.program.steps[first:last])}
        changes = [(row, parameter, places[id(step)], word) for row, parameter, step, word in self.own]
        stops = [(begin, end, places[id(step)], *rest) for begin, end, step, *rest in self.stops[stopped:]]
        return Template(own, start, len(self.chain), changes, stops)

    def _copy(self, template, first):
        steps = self.program.steps
        changes = [(row, parameter, word(steps[first + k])) for row, parameter, k, word in template.changes]
        start = self.chain.repeat(template.start, template.steps, changes)
        for begin, end, k, *rest in template.stops:
            at = start - template.start
            self.stops.append([begin + at, end + at, steps[first + k], *rest])

    def _rope_angles(self, index, rope):
        m, pairs = self.memory, len(rope.frequencies)
        values = (m.frequencies(index), m.positions, self._angles(index), pairs, self.rows, float(rope.magnitude))
        self._add("rope_angles", (blocks(pairs * self.rows, 256),), values)

    # ---- single steps ----

    def _normadd(self, record):
        norm, add = record.norm, record.add
        y, rows = self._at(norm.out)
        values = (y, self._floats(norm), self._at(add.out)[0], self._width(norm.out), float(norm.args["eps"]))
        self._add("rmsnorm_add", (rows,), (*values, float(add.args.get("scale", 1.0))))

    def _plain(self, record):
        getattr(self, "_step_" + record.step.op)(record.step)

    def _step_embed(self, step):
        tensor = self.file.tensors[step.weights[0]]
        columns = tensor.shape[0]
        values = self.memory.stored(tensor), self.memory.ids, self._to(step.out, self.rows), columns, float(step.args["scale"]), 0
        self._add("embed_" + by_id(tensor.type).name, (blocks(columns, 256), self.rows), values)

    def _step_add_position(self, step):
        tensor = self.file.tensors[step.weights[0]]
        x, rows = self._at(step.out)
        columns = tensor.shape[0]
        values = self.memory.stored(tensor), self.memory.positions, x, columns, 1.0, 1
        self._add("embed_" + by_id(tensor.type).name, (blocks(columns, 256), rows), values)

    def _step_rmsnorm(self, step):
        source, rows = self._at(step.ins[0])
        values = (source, self._floats(step), self._to(step.out, rows), self._width(step.out), float(step.args["eps"]))
        self._add("rmsnorm", (rows,), values)

    def _step_layernorm(self, step):
        source, rows = self._at(step.ins[0])
        flags = sum(1 << number for number, name in enumerate(step.weights) if name)
        values = source, self._floats(step), self._floats(step, 1), self._to(step.out, rows), self._width(step.out), flags
        self._add("layernorm", (rows,), (*values, float(step.args["eps"])))

    def _step_head_rmsnorm(self, step):
        heads, dim = step.args["heads"], step.args["head_dim"]
        w, normed = (0, 0), dim
        if step.weights[0]:
            w, normed = (self._floats(step), 1), min(dim, self.file.tensors[step.weights[0]].elements)
        q, rows = self._at(step.out)
        self._add("head_rmsnorm", (blocks(heads, 8), rows), (q, *w, heads, dim, normed, float(step.args["eps"])))

    def _step_head_layernorm(self, step):
        self._heads("head_layernorm", step)

    def _heads(self, kernel, step):
        q, rows = self._at(step.out)
        heads, dim, eps = step.args["heads"], step.args["head_dim"], float(step.args["eps"])
        self._add(kernel, (blocks(heads, 8), rows), (q, self._floats(step), heads, dim, eps))

    def _step_rope(self, step):
        q, rows = self._at(step.out)
        heads, dim, table = step.args["heads"], step.args["head_dim"], step.args["table"]
        rope = self.program.ropes[table]
        start = q + 4 * step.args.get("first", 0)
        values = start, self._angles(table), heads, dim, len(rope.frequencies), int(rope.style == "neox")
        self._add("rope", (blocks(heads, 8), rows), values)

    def _step_temper(self, step):
        args = step.args
        self._by_row("temper", step, self.memory.positions, args["length"], args.get("ahead", 0), float(args["scale"]))

    def _step_bias(self, step):
        self._by_row("bias", step, self._floats(step))

    def _by_row(self, kernel, step, *values):
        """x = f(x, ...) where rows or columns differ: values are what follows x among the kernel's parameters, but for columns."""
        x, rows = self._at(step.out)
        columns = self._width(step.out)
        self._add(kernel, (blocks(columns, 1024), rows), (x, values[0], columns, *values[1:]))

    def _step_gate_rows(self, step):
        y, rows = self._at(step.out)
        source, _ = self._at(step.ins[1])
        values = y, source, self._floats(step), self._width(step.out), self._width(step.ins[1])
        self._add("gate_rows", (rows,), values)

    def _step_weigh(self, step):
        (x, rows), columns = self._at(step.out), self._width(step.out)
        one = int(self.file.tensors[step.weights[0]].elements == 1)
        self._add("weigh", (blocks(columns, 256), rows), (x, self._floats(step), columns, one))

    def _step_gate_heads(self, step):
        (a, rows), heads = self._at(step.out), step.args["heads"]
        self._add("gate_heads", (heads, rows), (a, self._at(step.ins[1])[0], self._width(step.out) // heads))

    def _step_select(self, step):
        source, _ = self._at(step.out)
        columns = self._width(step.out)
        self.selected[step.out] = out = self.memory.selected(step.out, self.wanted)
        self._add("select", (blocks(columns, 1024), self.wanted), (source, self.memory.wanted, out, columns))

    def _elementwise(self, kernel, step, *others):
        """x = f(x, ...): one launch over all values of the buffer's rows."""
        x, rows = self._at(step.out)
        count = rows * self._width(step.out)
        self._add(kernel, (blocks(count, 1024),), (x, *others[:-1], count, *others[-1]))

    def _step_add(self, step):
        self._elementwise("add", step, self._at(step.ins[1])[0], (float(step.args.get("scale", 1.0)),))

    def _step_gated(self, step):
        act, *limit = unit_of(step)
        self._elementwise("gated_" + act, step, self._at(step.ins[1])[0], limit)

    def _step_unary(self, step):
        parameters = [float(value) for value in step.args.get("parameters", ())]
        self._elementwise("unary_" + step.args["act"], step, (*parameters, *[0.0] * (UNARY_PARAMETERS - len(parameters))))

    def _step_clamp(self, step):
        self._elementwise("clamp", step, (float(step.args["limit"]),))

    def _step_scale(self, step):
        self._elementwise("scale", step, (float(step.args["factor"]),))

    def _step_softcap(self, step):
        self._elementwise("softcap", step, (float(step.args["cap"]),))


def refuse_large(program, image):
    """UnsupportedError for steps that the shared memory of a block does not hold, whatever the batch, where these kernels run.
    Where it is only the length of rows, there are other kernels."""
    for step in program.steps:
        what, least = "", 0
        if step.op == "attention":
            what = "attention with {key_dim} dimensions of a key and {value_dim} of a value".format(**step.args)
            least = least_shared_bytes(step)
        elif step.op == "route":
            what = "{used} experts for a token".format(**step.args)
            least = 4 * BATCH * step.args["used"] + image.kernel("expert_order").shared
        if least > image.most_shared_bytes:
            need = f"at most {image.most_shared_bytes} bytes of shared memory"
            remedy = "use --backend cpu"
            raise UnsupportedError(f"the kernels for {image.target} cannot hold {what}", need, f"{least} bytes", remedy=remedy)


def lowering(program):
    """The Lowering for a program: experts and recurrent layers have files of their own, which others do not import.

    UnsupportedError where it lacks an operation of the program, before anything is lowered."""
    found, ops = Lowering, {step.op for step in program.steps}
    if "route" in ops:
        from .experts import ExpertLowering, refuse

        refuse(program)
        found = ExpertLowering
    if "head_linear" in ops:
        from .latent import LatentLowering, refuse

        refuse(program)
        found = LatentLowering
    if program.states or "head_part" in ops:
        from .recurrent import Recurrent, refuse

        refuse(program)
        found = type("RecurrentLowering", (Recurrent, found), {})
    if "streams_begin" in ops:
        from .residual_streams import ResidualStreams

        found = type("StreamsLowering", (ResidualStreams, found), {})
    lacking = sorted(op for op in ops.difference(IN_RECORDS, found.in_records) if not hasattr(found, "_step_" + op))
    dims = max((max(step.args["key_dim"], step.args["value_dim"]) for step in program.steps if step.op == "attention"), default=0)
    if dims > MOST_DIMENSIONS:
        lacking.append(f"attention with heads of {dims} dimensions, more than {MOST_DIMENSIONS}")
    if lacking:
        raise UnsupportedError(
            f"the cuda backend cannot run architecture {program.architecture}",
            expected="operations that it has launches for",
            found=", ".join(lacking),
            remedy="use --backend cpu",
        )
    return found
