"""Launches of layers with a state (kernels/cuda/conv.py, recurrence.py), and of what only such layers have. `Recurrent` goes before
the Lowering of a program that has them, whose file others do not import.

A state lies in one of PLACES places, each all that the program's steps keep of one text, in the order of Program.states. The
device has a table of the places' addresses; a place is allocated when a batch first leaves something there (`reach`).
"""

from ... import native
from ...errors import UnsupportedError
from ..layers import checked
from .batch import Batch
from .parameters import Own, blocks

GROUPED, CHANNELS, SCAN = 1, 2, 4  # flags of kernels/cuda/recurrence.py
WIDTH, WARPS = 32, 8  # columns of a block, and its warps
MOST_ROWS = (64 << 10) // (4 * WIDTH) - WARPS  # of a matrix of state: more do not fit into the shared memory of every device


def strand_words(rows):
    """int32 of the strands of a batch of so many rows."""
    return 1 + 4 * rows


def offset_of(program, index):
    """Where a step's state lies in a place, in float32."""
    return sum(program.states[:index])


def refuse(program):
    """UnsupportedError for a state that no block of threads can keep."""
    for step in program.steps:
        rows = step.args.get("state_dim", 0) if step.op == "state_scan" else step.args.get("key_dim", 0)
        if step.op in ("state_scan", "delta_rule") and rows > MOST_ROWS:
            remedy = "use --backend cpu"
            raise UnsupportedError("the cuda backend cannot keep such states", f"at most {MOST_ROWS} rows", rows, remedy=remedy)


def send(plan, view, at, strands, count):
    """Fill in the strands of a batch of `count` rows, from word `at` of the request on, and have room for what they leave."""
    words = checked(strands, count)
    reach(plan, max(strand[3] for strand in strands))
    for i, word in enumerate(words, at):
        view[i] = word


def reach(plan, place):
    """Make sure that all places up to this one are there."""
    first = len(plan.place_addresses)
    if place < first:
        return
    size = 4 * sum(plan.program.states)
    plan.place_addresses += [plan.device.allocate(size, "states of recurrent layers") for _ in range(first, place + 1)]
    plan.allocated += size * (place + 1 - first)
    block = (native.Int64 * (place + 1 - first))(*plan.place_addresses[first:])
    plan.device.copy_in(plan.address(plan.memory.place_table) + 8 * first, native.address_of(block), 8 * len(block))
    plan.device.synchronize()


class Recurrent(Batch):
    """The steps; see lowering.py."""

    def _state(self, step):
        return Own(lambda step: offset_of(self.program, step.args["state"]), step)

    def _small(self, step, number, skip=0):
        """Parameter for a float32 weight from an element on; 0 where the step has none."""
        weight = self._weight(number)
        return Own(lambda step: weight(step) + 4 * skip, step) if step.weights[number] else 0

    def _step_conv(self, step):
        args, m = step.args, self.memory
        source, rows = self._at(step.ins[0])
        columns, taps, first = self._width(step.out), args["taps"], args["first"]
        weights = self._small(step, 0, taps * first), self._small(step, 1, first)
        ends = source, *weights, self._to(step.out, rows), m.place_table, m.strands, self._state(step)
        self._add("conv", (blocks(columns, 128),), (*ends, columns, taps, int(step.weights[1] is not None)))

    def _recurrence(self, step, ins, a, d, sizes, flags, scale):
        m, (heads, _, rows, columns) = self.memory, sizes
        addresses = [self._at(name)[0] if name else 0 for name in ins]
        out = self._to(step.out, self.rows)
        values = (*addresses, out, a, d, m.place_table, m.strands, self._state(step), *sizes, flags, scale)
        self._add("recurrence", (blocks(columns, WIDTH), heads), values, 4 * WIDTH * (rows + WARPS))

    def _step_delta_rule(self, step):
        args = step.args
        sizes = [args[name] for name in ("heads", "key_heads", "key_dim", "value_dim")]
        flags = GROUPED * (args["order"] == "grouped") + CHANNELS * args["channels"]
        self._recurrence(step, step.ins, self._floats(step), 0, sizes, flags, args["key_dim"] ** -0.5)

    def _step_state_scan(self, step):
        sizes = [step.args[name] for name in ("heads", "groups", "state_dim", "head_dim")]
        u, b, c, dt = step.ins
        self._recurrence(step, (c, b, u, dt, None), self._floats(step), self._floats(step, 1), sizes, GROUPED + SCAN, 1.0)

    def _step_head_l2norm(self, step):
        q, rows = self._at(step.out)
        heads, dim = step.args["heads"], step.args["head_dim"]
        self._add("group_rmsnorm", (heads, rows), (q, 0, heads, dim, 1, 0, float(step.args["eps"])))

    def _step_group_rmsnorm(self, step):
        y, rows = self._at(step.out)
        groups, size = step.args["groups"], step.args["size"]
        self._add("group_rmsnorm", (groups, rows), (y, self._floats(step), groups, size, size, 1, float(step.args["eps"])))

    def _step_head_part(self, step):
        args = step.args
        source, rows = self._at(step.ins[0])
        sizes = [args[name] for name in ("heads", "head_dim", "stride", "first")]
        self._add("head_part", (blocks(sizes[0] * sizes[1], 256), rows), (source, self._to(step.out, rows), *sizes))
