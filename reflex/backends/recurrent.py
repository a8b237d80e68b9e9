"""Steps with a state, and what only their layers have, as native steps (kernels/host/recurrent.py, norms.py); memory of states.

Imported where a program has one. A function is called as its operation and does for it what the methods of lowering.py do for the
others; f(lowering, step). A place holds all that the program's steps keep of one text, in the order of Program.states.
"""

from ..program.records import PLACES
from .further import floats_or_none
from .lowering import ALL, float_bits

TILE = 32  # columns of a matrix of state that a thread keeps together (kernels/host/recurrent.py)


def reserve(memory):
    """Room for PLACES states and for the strands of a batch."""
    memory.states, memory.place_bytes = [], 0
    for numbers in memory.program.states:
        memory.states.append(memory.place_bytes)
        memory.place_bytes += 4 * numbers
    memory.strands = memory._reserve("strands", 8 * (1 + 4 * memory.rows))
    memory._reserve("states", PLACES * memory.place_bytes)


def state_of(memory, index, place=0):
    """Address of a step's state in a place."""
    return memory.places["states"] + place * memory.place_bytes + memory.states[index]


def state(low):
    """A function from a step to the address of its state in the first place."""
    return lambda step: state_of(low.memory, step.args["state"])


def conv(low, step):
    (source,), out, m = step.ins, step.out, low.memory
    columns, taps = low.width(out), step.args["taps"]
    division = ("columns", columns)

    def weights(step):
        return low.floats(step.weights[0]) + 4 * taps * step.args["first"]

    def bias(step):
        return 0 if step.weights[1] is None else low.floats(step.weights[1]) + 4 * step.args["first"]

    zeros = m._named("zeros", 4 * (taps - 1) * max(low.program.widths.values()))
    row = (
        m.buffer(source), weights(step), bias(step), m.buffer(out), columns, taps, m.strands,
        state_of(m, step.args["state"]), m.place_bytes, zeros,
    )  # fmt: skip
    low.mark(out, False)
    relocations = ((1, weights), (2, bias), (7, state(low)))
    low.add("conv", row, ((source, division),), ((out, division),), relocations)


def recurrence(low, step, weights, words):
    """A step over matrices of state; `words`: heads, heads of keys, rows, columns, grouped, channels, scale."""
    m, out, (_, _, rows, *_) = low.memory, step.out, words
    parameters = (m.strands, m.place_bytes, *words, *m.scratch("recurrence", 4 * rows * (1 + TILE)))
    small = [lambda step, i=i: floats_or_none(low, step.weights[i]) for i in range(weights)]
    own = [f(step) for f in (*small, state(low))]
    row = (*map(m.buffer, step.ins), m.buffer(out), *own, m.constants(parameters))
    at = len(step.ins) + 1
    relocations = (*((at + i, f) for i, f in enumerate(small)), (at + weights, state(low)))
    low.mark(out, False)
    low.add(step.op, row, [(buffer, ALL) for buffer in step.ins], ((out, ("tiles", *words[:4])),), relocations)


def delta_rule(low, step):
    args = step.args
    rows = args["key_dim"]
    words = (args["heads"], args["key_heads"], rows, args["value_dim"])
    recurrence(low, step, 1, (*words, int(args["order"] == "grouped"), int(args["channels"]), float_bits(rows**-0.5)))


def state_scan(low, step):
    args = step.args
    recurrence(low, step, 2, (args["heads"], args["groups"], args["state_dim"], args["head_dim"], 1, 0, 0))


def head_l2norm(low, step):
    over_heads(low, step, step.args["heads"], step.args["head_dim"], None)


def group_rmsnorm(low, step):
    over_heads(low, step, step.args["groups"], step.args["size"], low.norm_weights)


def over_heads(low, step, heads, dim, weights):
    out, m = step.out, low.memory
    division, _, count = low._heads(out, heads)
    row = (m.buffer(out), weights(step) if weights else 0, heads, dim, count, 4 * low.width(out), float_bits(step.args["eps"]))
    low.add(step.op, row, ((out, division),), ((out, division),), ((1, weights),) if weights else ())


def head_part(low, step):
    (source,), out, args, m = step.ins, step.out, step.args, low.memory
    chosen, count = low.rows(source)
    low.mark(out, chosen)
    division, _, _ = low._heads(out, args["heads"])
    row = (m.buffer(source), m.buffer(out), args["heads"], args["head_dim"], count, args["stride"], args["first"])
    low.add("head_part", row, ((source, ALL),), ((out, division),))
