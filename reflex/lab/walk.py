"""A program run in parts: on the reference and on the cpu backend its buffers can be read and overwritten between any two steps,
on the cuda backend between two launches.

The cpu backend reuses buffers and keeps quantized copies of them, so a walk has a table of steps of its own: the same kernels on
the same addresses, each operation with the copies that it needs and a wait behind it. Results are those of the backend to the
bit; the backend's own table is left as it is. Owns nothing else. Called by trace, patch and lens.
"""

from typing import Any

import numpy as np

from .. import native, quant
from ..backends.cpu import SLOTS
from ..backends.lowering import STEP_WORDS, Lowering
from ..program.records import BATCH
from ..quant.types import by_id
from .taps import head_product


class Walk:
    """What all backends share; the other methods are theirs."""

    begin: Any
    run: Any
    read: Any
    load: Any
    most_logits: int  # rows of logits in memory at once
    batch = BATCH  # most tokens taken up at once

    def __init__(self, plan):
        self.plan = plan
        self.program = plan.program
        selects = [n for n, step in enumerate(self.program.steps) if step.op == "select"]
        self.selected = selects[0] if selects else len(self.program.steps)  # from here on buffers have the wanted rows only

    def plain(self, ids, first):
        """Take up tokens of a text, `first` being the position of the first of them; every row is wanted."""
        count, zeros = len(ids), [0] * len(ids)
        strands = ((0, count, 0 if first else -1, 0),) if self.program.states else ()  # nothing else lies in the plan's places
        self.begin(ids, first, list(range(first, first + count)), zeros, zeros, list(range(count)), (), strands)

    def sinks(self, step):
        """float32 [heads] of an attention step; None where it has none."""
        if not step.weights:
            return None
        tensor = self.plan.file.tensors[step.weights[0]]
        return quant.decode(by_id(tensor.type).name, native.view(tensor.address, tensor.nbytes)).reshape(-1)

    def head(self, first, buffer, states):
        """Yields the logits of `states` [rows, width], put into `buffer`, by the steps from `first` on: some rows at a time."""
        for start in range(0, len(states), self.most_logits):
            part = states[start : start + self.most_logits]
            self.load(buffer, part)
            self.run(first, len(self.program.steps))
            yield self.read(self.program.steps[-1].out, len(self.program.steps))[: len(part)]

    def lens(self, states):
        """Logits that the model's own head makes of `states` of the residual stream, some rows at a time."""
        return self.head(self.program.layers[-1], self.program.steps[self.program.layers[-1]].ins[0], states)

    def scores(self, at, rows):
        """Yields the logits of some rows of the batch, of which `at` steps have run: some rows at a time."""
        tail = head_product(self.program)
        self.run(at, tail)
        return self.finish(self.read(self.program.steps[tail].ins[0], tail)[rows].copy())

    def finish(self, states):
        """Logits of normed `states`, some rows at a time."""
        tail = head_product(self.program)
        return self.head(tail, self.program.steps[tail].ins[0], states)


class ReferenceWalk(Walk):
    """Over the reference backend."""

    def __init__(self, plan):
        super().__init__(plan)
        self.most_logits = plan.most_logits
        self.begin = plan.begin
        self.run = plan.run

    def read(self, buffer, at):
        """float32 [rows, columns] of a buffer once `at` steps have run; not a copy."""
        return self.plan.buffers[buffer]

    def write(self, buffer, at, values):
        self.plan.buffers[buffer] = np.ascontiguousarray(values)

    def load(self, buffer, values):
        """Make `values` the wanted rows of a buffer."""
        self.write(buffer, 0, values)

    def cached(self, step, slots):
        """Keys [slots, kv_heads, key_dim] and values [slots, kv_heads, value_dim] of the layer of an attention step."""
        kept = [kept[:slots] for kept in self.plan.cached(step.args["layer"])]
        if step.op == "latent_attention":
            return latent(kept[0], step)
        return [part.reshape(slots, step.args["kv_heads"], -1) for part in kept]


class Own:
    """A memory whose step table is another: everything else is that of the plan."""

    def __init__(self, memory):
        self._memory = memory

    def __getattr__(self, name):
        return getattr(self._memory, name)

    def table(self, steps):
        return self._memory.table(steps, "step table of the lab")


class CpuWalk(Walk):
    """Over the cpu backend."""

    def __init__(self, plan):
        super().__init__(plan)
        self.memory = plan.memory
        self.most_logits = plan.memory.logits_rows
        self.ends = Lowering(plan.library, plan.file, plan.program, Own(plan.memory)).lower_apart()
        self.table = plan.memory.places["step table of the lab"]

    def begin(self, *batch):
        """Take up a batch; arguments as of `Plan.evaluate`."""
        self.plan.begin(*batch)

    def run(self, first, last):
        """Operations `first` to `last` - 1 of the program."""
        start = self.ends[first - 1] if first else 0
        if last > first:
            self.plan.team.execute(self.table + 8 * STEP_WORDS * start, self.ends[last - 1] - start)

    def read(self, buffer, at):
        """float32 [rows, columns] of a buffer once `at` steps have run; not a copy."""
        cell = self.memory.wanted_count if at > self.selected else self.memory.token_count
        rows, columns = native.view(cell, 1, "q")[0], self.program.widths[buffer]
        return self._floats(self.memory.buffer(buffer), rows * columns).reshape(rows, columns)

    def write(self, buffer, at, values):
        self.read(buffer, at)[:] = values

    def load(self, buffer, values):
        """Make `values` the wanted rows of a buffer."""
        native.view(self.memory.wanted_count, 1, "q")[0] = len(values)
        self.write(buffer, len(self.program.steps), values)

    def cached(self, step, slots):
        """Keys [slots, kv_heads, key_dim] and values [slots, kv_heads, value_dim] of the layer of an attention step."""
        heads, key_dim, value_dim = self.program.caches[step.args["layer"]]
        keys, values = self.memory.caches[step.args["layer"]]
        capacity = self.memory.capacity
        if step.op == "latent_attention":
            return latent(self._floats(keys, slots * key_dim).reshape(slots, key_dim), step)
        keys = self._floats(keys, heads * capacity * key_dim).reshape(heads, capacity // SLOTS, key_dim, SLOTS)
        keys = keys[:, : -(-slots // SLOTS)].transpose(1, 3, 0, 2).reshape(-1, heads, key_dim)[:slots]
        values = self._floats(values, heads * capacity * value_dim).reshape(heads, capacity, value_dim)
        return keys, values[:, :slots].transpose(1, 0, 2)

    @staticmethod
    def _floats(address, count):
        return np.frombuffer(native.view(address, count, "f"), np.float32)


def latent(rows, step):
    """Keys and values of latent attention, of one head each: the values are the first dimensions of the keys."""
    return rows[:, None], rows[:, None, : step.args["value_dim"]]


class DeviceWalk(Walk):
    """Over the cuda backend: reads and writes what is there between two launches."""

    def __init__(self, plan):
        super().__init__(plan)
        from ..backends.cuda.parts import Parts

        self.parts = Parts(plan)
        self.batch = self.parts.batch
        self.begin = self.parts.begin

    def run(self, first, last):
        """All launches before step `last`."""
        self.parts.run(last)

    def read(self, buffer, at):
        """float32 [rows, columns] of a buffer once `at` steps have run; a copy."""
        found = np.empty((self.parts.rows, self.program.widths[buffer]), np.float32)
        self.parts.read(buffer, at, found.ctypes.data)
        return found

    def write(self, buffer, at, values):
        values = np.ascontiguousarray(values, np.float32)
        self.parts.write(buffer, at, values.ctypes.data)

    def scores(self, at, rows):
        """Yields the logits of some rows of the batch, one at a time."""
        self.parts.run(len(self.program.steps))
        for row in rows.tolist():
            yield np.array(self.plan.logits(row), np.float32)[None]


WALKS = {"reference": ReferenceWalk, "cpu": CpuWalk, "cuda": DeviceWalk}
