"""A batch run in parts: up to a moment of the program that lies between two launches.

The launches are those of the backend as they are; between two of them (moments.py) buffers can be copied out and in. The norm that
the output matrix reads, which its product does itself, is written down by one launch more. Imported by the lab alone.
"""

from ...errors import InternalError
from .launch import Chain
from .lowering import lowering
from .moments import NORM, final_norm, moments, segment

CHAINS = 2  # batch sizes whose launches are kept


def marked(program):
    """The Lowering of a program, as a class that remembers where launches end."""

    class Marked(lowering(program)):
        """It has in `rows_after` where the launches of every record end."""

        def lower(self):
            self.rows_after = {}  # (first step of a segment, number of a record or NORM) -> row of the chain
            self.starts = {}  # row where the launches of a segment start -> its first step
            self.norm, self.norm_at = final_norm(self.program), None
            return super().lower()

        def _lower(self, first, last):
            self.starts[len(self.chain)] = first
            for k, (record, _) in enumerate(segment(self.program.steps[first:last])):
                if self.norm is not None and getattr(record, "norm", None) is self.norm:
                    self._write_norm(first)
                getattr(self, "_" + type(record).__name__.lower())(record)
                self.rows_after[first, k] = len(self.chain)

        def _copy(self, template, first):
            shift, known = len(self.chain) - template.start, self.starts[template.start]
            super()._copy(template, first)
            for begin, k in [key for key in self.rows_after if key[0] == known]:
                self.rows_after[first, k] = self.rows_after[begin, k] + shift

        def _write_norm(self, first):
            step = self.norm
            source, rows = self._at(step.ins[0])
            self.norm_at = self.memory.named("norm of the lab", 4 * self.memory.rows * self._width(step.out))
            values = source, self._floats(step), self.norm_at, self._width(step.out), float(step.args["eps"])
            self._add("rmsnorm", (rows,), values)
            self.rows_after[first, NORM] = len(self.chain)

    return Marked


class Parts:
    """Batches of a Plan, in parts. All rows of a batch are wanted, so `batch` tokens are the most."""

    def __init__(self, plan):
        self.plan = plan
        self.batch = min(plan.memory.rows, plan.memory.wanted_rows)
        self.moments = moments(plan.program)
        self._kind = marked(plan.program)
        self._chains = {}  # rows -> (chain, its lowering, last row)

    def begin(self, ids, first_slot, positions, shared, branch, outputs, runs=(), strands=()):
        """Take up a batch; arguments as of the other backends' `begin`. Nothing is computed yet."""
        plan, rows = self.plan, len(ids)
        plan.check(ids, first_slot, outputs)
        if rows not in self._chains:
            while len(self._chains) >= CHAINS:
                self._drop(next(iter(self._chains)))
            chain = Chain(plan.library)
            facts = plan.image, plan.multiprocessors, chain, plan.file, plan.program, plan.memory
            low = self._kind(*facts, rows, rows)
            self._chains[rows] = chain, low, low.lower()[1]
            plan.settle(chain, whole=True)
        self.chain, self.lowering, self.last = self._chains[rows]
        self.rows, self.row = rows, 0
        plan.accept(ids, first_slot, positions, shared, branch, outputs, runs, strands)

    def _drop(self, rows):
        self.plan.device.synchronize()
        self._chains.pop(rows)[0].close()

    def run(self, at):
        """All launches up to the moment when `at` steps have run; what has run already stays."""
        row = self.last
        if at < len(self.plan.program.steps):
            moment = self._moment(at)
            row = self.lowering.rows_after[moment.first, moment.record]
        if row > self.row:
            self.chain.run(self.row, row)
            self.row = row

    def _moment(self, at):
        if at not in self.moments:
            raise InternalError("no launch ends at this step", f"one of {sorted(self.moments)}", at)
        return self.moments[at]

    def _place(self, buffer, at):
        """(device address, bytes) of the rows of a buffer at a moment."""
        moment, plan = self._moment(at), self.plan
        if buffer not in moment.buffers:
            raise InternalError("this buffer is in no launch's results", f"{moment.buffers}", buffer)
        relative = self.lowering.norm_at if moment.record == NORM else plan.memory.buffer(buffer)
        return plan.address(relative), 4 * self.rows * plan.program.widths[buffer]

    def read(self, buffer, at, address):
        """Copy the rows of a buffer, float32, to an address on the host."""
        source, size = self._place(buffer, at)
        self.plan.device.copy_out(address, source, size)
        self.plan.device.synchronize()

    def write(self, buffer, at, address):
        """The reverse."""
        target, size = self._place(buffer, at)
        self.plan.device.copy_in(target, address, size)
        self.plan.device.synchronize()
