"""Operations that few families have, as native steps: imported where a program has one. A function is called as its operation
and does for it what the methods of lowering.py do for the others; f(lowering, step)."""

from math import exp, log1p

from ..quant.types import by_id, row_bytes
from .lowering import ONE, float_bits


def floats_or_none(low, name):
    """Address of a small tensor as float32, 0 where there is none."""
    return 0 if name is None else low.floats(name)


def layernorm(low, step):
    (source,), out, m = step.ins, step.out, low.memory
    columns = low.width(out)
    chosen, count = low.rows(source)
    weights, bias = (lambda step, i=i: floats_or_none(low, step.weights[i]) for i in (0, 1))
    eps = float_bits(step.args["eps"])
    row = (m.buffer(source), weights(step), m.buffer(out), columns, count, 4 * columns, eps, bias(step))
    division = ("rows", chosen)
    low.mark(out, chosen)
    low.add("layernorm", row, ((source, division),), ((out, division),), ((1, weights), (7, bias)))


def head_layernorm(low, step):
    low.over_heads("head_layernorm", step)


def unary(low, step):
    buffer, act = step.out, step.args["act"]
    words = ONE, ()
    parameters = step.args.get("parameters")
    if parameters:
        alpha_p, alpha_n, beta, eps = parameters
        words = float_bits(softplus(alpha_p)), map(float_bits, (beta + softplus(alpha_n), beta, eps))
    low.over_columns("unary_" + act, buffer, buffer, words[0], *words[1])


def softplus(x):
    return x + log1p(exp(-x)) if x > 0 else log1p(exp(x))


def clamp(low, step):
    low.over_columns("clamp", step.out, step.out, float_bits(step.args["limit"]))


def bias(low, step):
    """An addition whose other operand is the same for all rows."""
    buffer, m = step.out, low.memory
    columns = low.width(buffer)
    _, count = low.rows(buffer)
    division = ("columns", columns)
    row = (m.buffer(buffer), low.norm_weights(step), columns, count, 4 * columns, ONE, 0)
    low.add("add", row, ((buffer, division),), ((buffer, division),), ((1, low.norm_weights),))


def add_position(low, step):
    buffer, m, tensor = step.out, low.memory, low.tensor(step.weights[0])
    columns = low.width(buffer)
    chosen, count = low.rows(buffer)
    decoder = low.library.address("decode_" + by_id(tensor.type).name)
    tokens = m.wanted if chosen else m.every
    scratch = m.linear_scratch()
    row = (
        m.buffer(buffer), tensor.address, columns, count, row_bytes(tensor.type, columns), tokens, m.positions, decoder, *scratch,
    )  # fmt: skip
    division = ("rows", chosen)
    low.add("add_position", row, ((buffer, division),), ((buffer, division),))


def temper(low, step):
    buffer, m = step.out, low.memory
    chosen, count = low.rows(buffer)
    tokens = m.wanted if chosen else m.every
    scale = float_bits(step.args["scale"])
    row = (m.buffer(buffer), low.width(buffer), count, tokens, m.positions, scale, step.args["length"], step.args.get("ahead", 0))
    division = ("rows", chosen)
    low.add("temper", row, ((buffer, division),), ((buffer, division),))
