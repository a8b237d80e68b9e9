"""Operations of kernels/host/weights.py and streams.py as native steps: imported where a program has one. A function is called
as its operation and does for it what the methods of lowering.py do for the others; f(lowering, step)."""

from .lowering import float_bits


def weigh(low, step):
    one = int(low.tensor(step.weights[0]).elements == 1)
    over_rows(low, "weigh", step, low.norm_weights(step), low.width(step.out), one, relocations=((1, low.norm_weights),))


def route_scale(low, step):
    over_rows(low, "route_scale", step, low.norm_weights(step), step.args["used"], relocations=((1, low.norm_weights),))


def over_rows(low, kernel, step, other, columns, *more, relocations=()):
    """A step in place, every row by itself."""
    buffer, m = step.out, low.memory
    chosen, count = low.rows(buffer)
    division = ("rows", chosen)
    row = (m.buffer(buffer), other, columns, count, *more)
    low.add(kernel, row, ((buffer, division),), ((buffer, division),), relocations)


def gate_heads(low, step):
    (buffer, gates), heads, m = step.ins, step.args["heads"], low.memory
    chosen, count = low.rows(buffer)
    division = ("heads", heads, chosen)
    row = (m.buffer(buffer), m.buffer(gates), low.width(buffer) // heads, count, heads)
    low.add("gate_heads", row, ((buffer, division), (gates, division)), ((buffer, division),))


def sparsify(low, step):
    columns = low.width(step.out)
    scratch, size = low.memory.scratch("squares", 4 * columns)
    over_rows(low, "sparsify", step, scratch, columns, float_bits(step.args["deviations"]), size)


def streams(low, step, width):
    """A step over rows whose streams are `width` columns wide."""
    m, ins = low.memory, step.ins
    chosen, count = low.rows(ins[0])
    division = ("rows", chosen)
    row = (m.buffer(step.out), *map(m.buffer, ins[:2]), width, count, *map(m.buffer, ins[2:]))
    low.mark(step.out, chosen)
    low.add(step.op, row, tuple((buffer, division) for buffer in ins), ((step.out, division),))


def streams_begin(low, step):
    streams(low, step, low.width(step.ins[0]))


def streams_predict(low, step):
    streams(low, step, low.width(step.out) // 4)


def streams_correct(low, step):
    streams(low, step, low.width(step.ins[1]))


def streams_inject(low, step):
    streams(low, step, low.width(step.ins[1]))


def streams_end(low, step):
    streams(low, step, low.width(step.out))
