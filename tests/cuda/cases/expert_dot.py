import numpy
from run import Case

from reflex.kernels.cuda.expert_dot import FORMATS, held_down, threads_of
from reflex.kernels.cuda.gated import FORMULAS
from reflex.ops import route as op
from reflex.ops.gated import UNITS

from .linear_plain import weights_of

EXPERTS, GATING = 6, {"softmax": 0, "sigmoid": 1, "softmax of chosen": 2}
BLOCKS = [bound.block for bound in FORMATS.values()]


class Stack:
    """The matrices of EXPERTS experts, read past the end by a few bytes."""

    def __init__(self, block, rows, columns, random, experts=EXPERTS):
        self.block, self.rows, self.columns = block, rows, columns
        self.bytes, values = weights_of(block, experts * rows, columns, random)
        self.values = values.reshape(experts, rows, columns)
        self.stride = rows * columns // block.elements * block.nbytes


def chosen(used, gating, renormalize, scale, routed, random, experts=EXPERTS):
    """(ids, weights, arguments from the logits on)."""
    logits = random.standard_normal((1, experts), "f4")
    words = {"used": used, "gating": gating, "renormalize": renormalize, "scale": scale}
    routes = op.reference(logits, None, **words)
    arguments = [logits[0], routes[0].copy(), int(routed), experts, used, GATING[gating], int(renormalize), scale]
    arguments[0 if routed else 1][...] = numpy.nan
    return routes[0, used:].astype(int), routes[0, :used].astype("f8"), arguments


def noise(values, h):
    """What rounding activations to 15 bits may do, in standard deviations; see cases/linear_dot.py."""
    rounding = numpy.abs(h).reshape(-1, 32).max(axis=1).repeat(32) / 8127 / numpy.sqrt(12)
    return numpy.sqrt((values.astype("f8") ** 2) @ (rounding * rounding)).max() * 2


def shared(columns):
    return 5 * columns // 2


def gate(label, block, used, rows, columns, random, act=0, splits=1, normed=False, emulate=True, **words):
    experts = words.pop("experts", EXPERTS)
    stacks = [Stack(block, rows, columns, random, experts) for _ in range(2)]
    x, norm, eps = random.standard_normal(columns, "f4") * numpy.float32(30), random.standard_normal(columns, "f4"), 1e-6
    ids, weights, choice = chosen(used, **words, random=random, experts=experts)
    routes = numpy.concatenate([weights, ids])
    h = x.astype("f8")
    if normed:
        h = h * norm / numpy.sqrt((h * h).mean() + eps)
    g, u = (numpy.stack([s.values[e].astype("f8") @ h for e in ids]) for s in stacks)
    wanted = UNITS[list(FORMULAS)[act]](g, u)
    error = max(noise(s.values[ids].reshape(-1, columns), h) for s in stacks) * max(1, numpy.abs(g).max(), numpy.abs(u).max())
    args = [
        x, norm, int(normed), eps, columns, stacks[0].bytes, stacks[1].bytes, stacks[0].stride, rows, *choice,
        numpy.full((used, rows), numpy.nan, "f4"), act, splits,
    ]  # fmt: skip
    own = threads_of(FORMATS[block.id], 2) // 16 // splits
    made = Case(
        label, f"expert_gate_{block.name}", (used * rows + own - 1) // own, args, {10: routes, 17: wanted}, shared(columns),
        3 * error / numpy.abs(wanted).max() + 1e-6, emulate=emulate,
    )  # fmt: skip
    made.bytes = 2 * used * stacks[0].stride
    return made


def down(label, block, used, hidden, rows, random, mode=0, splits=1, emulate=True, experts=EXPERTS):
    stack, held = Stack(block, rows, hidden, random, experts), held_down(FORMATS[block.id])
    g = random.standard_normal((used, hidden), "f4")
    ids, weights = random.permutation(experts)[:used], random.random(used)
    routes = numpy.concatenate([weights, ids]).astype("f4")
    h = (g * weights[:, None]).reshape(-1)
    matrix = numpy.concatenate([stack.values[e] for e in ids], 1).astype("f8")
    out, scale = random.standard_normal(rows, "f4"), 0.5
    wanted = out + scale * (matrix @ h) if mode else matrix @ h
    args = [g, hidden, stack.bytes, stack.stride, rows, routes, used, out, mode, scale, splits]
    own = threads_of(FORMATS[block.id], held) // 16 // splits
    staged = 0 if held == 2 else used * own * stack.stride // rows
    grid = (rows + held * own - 1) // (held * own)
    made = Case(
        label, f"expert_down_{block.name}", grid, args, {7: wanted}, shared(used * hidden) + staged,
        3 * noise(matrix, h) / numpy.abs(wanted).max() + 1e-6, emulate=emulate,
    )  # fmt: skip
    made.bytes = used * stack.stride
    return made


PLAIN = {"gating": "softmax", "renormalize": True, "scale": 1.0, "routed": False}
OTHER = {"gating": "sigmoid", "renormalize": False, "scale": 2.5, "routed": False}


def cases():
    random = numpy.random.default_rng(41)
    for block in BLOCKS:
        yield gate("small", block, 2, 30, 256, random, **PLAIN)
        yield gate("splits", block, 3, 5, 1280, random, act=1, splits=2, normed=True, **OTHER)
        yield down("small", block, 2, 256, 104, random, splits=2)
        yield down("splits", block, 3, 768, 8, random, mode=1, splits=3)
    sums = PLAIN | {"renormalize": False, "experts": 100}
    yield gate("sums", BLOCKS[0], 8, 3, 256, random, **sums)
    yield gate("routed", BLOCKS[0], 2, 3, 256, random, **PLAIN | {"routed": True})
    yield down("wide", BLOCKS[0], 8, 1024, 5, random, mode=1, splits=8, experts=9)


def bench():
    """The experts of one row in a model of 30 billion weights, 128 experts of which 8 are used."""
    random = numpy.random.default_rng(42)
    big = PLAIN | {"experts": 32}
    for block in BLOCKS:
        yield gate("8x768x2048", block, 8, 768, 2048, random, normed=True, emulate=False, **big)
        for splits in (6, 3, 2):  # with one, the rows of Q6_K need more shared memory than there is
            yield down(f"8x768x2048 s{splits}", block, 8, 768, 2048, random, mode=1, splits=splits, emulate=False, experts=32)
