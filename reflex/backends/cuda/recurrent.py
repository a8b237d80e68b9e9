"""Launches of layers with a state (recurrent_patterns.py; kernels/cuda/conv.py, recurrence.py), and of what only such layers have.
`Recurrent` goes before the Lowering of a program that has them, whose file others do not import.

A state lies in one of PLACES places, each all that the program's steps keep of one text, in the order of Program.states. The
device has a table of the places' addresses; a place is allocated when a batch first leaves something there (`reach`).
"""

from ... import native
from ...errors import UnsupportedError
from ..layers import checked
from .fusion import Linear
from .memory import new_place, place_bytes
from .parameters import Own, blocks
from .products import Products
from .recurrent_patterns import IN_RECORDS, MOST_CONVS

FLOAT32, NARROW = 0, 64  # a type id; rows of a matrix at most
CHANNELS, ROWS, MOST_TAPS = 128, 8, 4  # of a block, and of a filter (kernels/cuda/conv.py)
SILU, BIASED = 1, 2  # flags of it
THREADS, HELD, LANES = 128, 16, 8  # of a block, rows of a thread, lanes of the usual variant (kernels/cuda/recurrence.py)
GROUPED, STEPS, SIGMOID, NORMED = 1, 2, 4, 8  # flags of it
WEIGHTED, GATED = 1, 2  # of kernels/cuda/group_rmsnorm.py
MOST_ROWS = 32 * HELD  # of a matrix of state: a column is kept by a warp at most
ROOM, STAGED = 16, 6144  # at most: tokens, and values of them, that are in shared memory at once


def strand_words(rows):
    """int32 of the strands of a batch of so many rows."""
    return 1 + 4 * rows


def offset_of(program, index):
    """Where a step's state lies in a place, in float32."""
    return sum(program.states[:index])


def refuse(program):
    """UnsupportedError for a state that no block of threads can keep, and for filters that are too long."""
    remedy = "use --backend cpu"
    for step in program.steps:
        rows = step.args.get("state_dim", 0) if step.op == "state_scan" else step.args.get("key_dim", 0)
        if step.op in ("state_scan", "delta_rule") and rows > MOST_ROWS:
            raise UnsupportedError("the cuda backend cannot keep such states", f"at most {MOST_ROWS} rows", rows, remedy=remedy)
        if step.op == "conv" and step.args["taps"] > MOST_TAPS:
            taps = step.args["taps"]
            raise UnsupportedError("the cuda backend has no such filters", f"at most {MOST_TAPS} taps", taps, remedy=remedy)


def shape(rule, size, tokens):
    """(kernel, lanes, tokens that are staged at once, bytes of shared memory) for matrices of `size` rows."""
    lanes = 1 << max(0, (blocks(size, HELD) - 1).bit_length())
    each = (3 if rule == "channels" else 2) * HELD * lanes + THREADS // lanes + 4
    room = min(tokens, ROOM, STAGED // each)
    return f"recurrence_{rule}_{lanes if lanes == LANES else 'any'}", lanes, room, 8 * room * each


def send(plan, view, at, strands, count):
    """Fill in the strands of a batch of `count` rows, from word `at` of the request on, and have room for what they leave."""
    words = checked(strands, count)
    reach(plan, max(strand[3] for strand in strands))
    for i, word in enumerate(words, at):
        view[i] = word


def reach(plan, place):
    """Make sure that all places up to this one are there."""
    first = len(plan.place_addresses)
    if plan.arriving is not None:
        plan.place_addresses += plan.arriving.begun().places[first:]
    while len(plan.place_addresses) <= place:
        plan.place_addresses.append(new_place(plan.device, plan.program))
    count = len(plan.place_addresses) - first
    if not count:
        return
    plan.allocated += count * place_bytes(plan.program)
    block = (native.Int64 * count)(*plan.place_addresses[first:])
    plan.device.copy_in(plan.address(plan.memory.place_table) + 8 * first, native.address_of(block), 8 * count)
    plan.device.synchronize()


class Recurrent(Products):
    """The steps; see lowering.py."""

    in_records = IN_RECORDS

    def _state(self, step):
        return Own(lambda step: offset_of(self.program, step.args["state"]), step)

    def _small(self, step, number, skip=0):
        """Parameter for a float32 weight from an element on; 0 where the step has none."""
        weight = self._weight(number)
        return Own(lambda step: weight(step) + 4 * skip, step) if step.weights[number] else 0

    def _linear(self, record):
        """As of others; but narrow matrices of float32, which steps and weights of recurrences come from, by the kernel of routers,
        where there are several rows: a product of half floats would be four launches each."""
        (source, rows), narrow = self._at(record.source), []
        if record.mode == "store" and (rows > 1 or self.reach):
            narrow = [step for step in record.steps if self._is_narrow(self._size(step))]
        rest = [step for step in record.steps if step not in narrow]
        if rest:
            super()._linear(Linear(record.source, rest, record.norm) if narrow else record)
        norm = (Own(self._weight(0), record.norm), 1, float(record.norm.args["eps"])) if record.norm else (source, 0, 0.0)
        for step in narrow:
            _, columns, count = self._size(step)
            bias = (Own(self._bias, step), 1) if step.weights[1] else (0, 0)
            values = source, *norm, columns, Own(self._matrix, step), *bias, self._to(step.out, rows), count, rows
            self._add("router_rows", (blocks(count, 16), blocks(rows, 8)), values)

    @staticmethod
    def _is_narrow(size):
        kind, columns, count = size
        return kind == FLOAT32 and columns % 4 == 0 and count <= NARROW

    def _convs(self, record):
        m, values, count = self.memory, [], 0
        for step in record.steps:
            columns, taps, first = self._width(step.out), step.args["taps"], step.args["first"]
            weights = self._small(step, 0, taps * first), self._small(step, 1, first)
            source, rows = self._at(step.ins[0])
            values += source, *weights, self._to(step.out, rows), self._state(step), columns
            count += blocks(columns, CHANNELS)
        values += [0] * (6 * (MOST_CONVS - len(record.steps)))
        flags = SILU * record.silu + BIASED * (step.weights[1] is not None)
        inner = blocks(rows, ROWS) if rows >= taps else 0  # blocks of rows that need no state
        self._add("conv", (count, 1 + inner), (*values, m.place_table, m.strands, taps, flags))

    def _recurrence(self, record):
        step, m = record.step, self.memory
        args, a, d = step.args, self._floats(step), 0
        if step.op == "state_scan":
            rule, scale, grouped = "scan", 1.0, True
            sizes = [args[name] for name in ("heads", "groups", "state_dim", "head_dim")]
            u, b, c, dt = step.ins
            ins, d = (c, b, u, dt), self._floats(step, 1)
        else:
            rule, scale, grouped = "channels" if args["channels"] else "delta", args["key_dim"] ** -0.5, args["order"] == "grouped"
            sizes = [args[name] for name in ("heads", "key_heads", "key_dim", "value_dim")]
            ins = step.ins
        kernel, lanes, room, shared = shape(rule, sizes[2], self.rows)
        addresses = [self._at(name)[0] for name in ins]
        addresses += [0] * (5 - len(addresses))  # a scan has no weights
        flags = GROUPED * grouped + STEPS * (record.bias is not None) + SIGMOID * record.sigmoid
        flags += NORMED * (record.norm is not None)
        values = (*addresses, self._floats(record.bias), self._to(step.out, self.rows), a, d, m.place_table, m.strands)
        eps = float(record.norm.args["eps"]) if record.norm else 0.0
        values += (self._state(step), *sizes, lanes, room, flags, scale, eps)
        # Blocks that take long are to be spread evenly, which they are where nothing runs beside them when they start.
        self._add(kernel, (blocks(sizes[3], THREADS // lanes), sizes[0]), values, shared, alone=self.rows > ROOM)

    def _gatednorm(self, record):
        norm, gate = record.norm, record.gate
        z, rows = self._at(gate.out)
        heads, dim = norm.args["heads"], norm.args["head_dim"]
        values = self._at(norm.out)[0], self._floats(norm), z, heads, dim, float(norm.args["eps"])
        self._add("head_rmsnorm_" + gate.args["act"], (blocks(heads, 8), rows), values)

    def _step_head_l2norm(self, step):
        q, rows = self._at(step.out)
        heads, dim = step.args["heads"], step.args["head_dim"]
        self._add("group_rmsnorm", (heads, rows), (q, 0, 0, heads, dim, 1, 0, float(step.args["eps"])))

    def _step_group_rmsnorm(self, step):
        self._groups_normed(step, 0, WEIGHTED)

    def _groups_normed(self, step, other, flags):
        (y, rows), groups, size = self._at(step.out), step.args["groups"], step.args["size"]
        values = y, self._floats(step), other, groups, size, size, flags, float(step.args["eps"])
        self._add("group_rmsnorm", (groups, rows), values)

    def _normedgate(self, record):
        self._groups_normed(record.norm, self._at(record.gate.ins[1])[0], WEIGHTED + GATED)

    def _step_head_part(self, step):
        args = step.args
        source, rows = self._at(step.ins[0])
        sizes = [args[name] for name in ("heads", "head_dim", "stride", "first")]
        self._add("head_part", (blocks(sizes[0] * sizes[1], 256), rows), (source, self._to(step.out, rows), *sizes))
