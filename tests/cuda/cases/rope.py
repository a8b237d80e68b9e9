import numpy
from run import Case

from reflex.ops import rope as op


def angles(positions, rope, **given):
    pairs = len(rope.frequencies)
    frequencies = numpy.array(rope.frequencies)
    angle = positions[:, None].astype("float64") * frequencies
    wanted = (numpy.stack([numpy.cos(angle), numpy.sin(angle)], -1) * rope.magnitude).astype("float32")
    out = numpy.full(wanted.shape, numpy.nan, "float32")
    rows = len(positions)
    args = [frequencies, positions, out, pairs, rows, rope.magnitude]
    label = f"{rows}x{pairs}-{positions[-1]}"
    return Case(label, "rope_angles", (rows * pairs + 255) // 256, args, {2: wanted}, tolerance=1e-7, **given)


def turned(one, random, **given):
    (q,), args = op.inputs(one, random)
    rope = args["rope"]
    angle = numpy.array(args["positions"], "float64")[:, None] * numpy.array(rope.frequencies)
    table = (numpy.stack([numpy.cos(angle), numpy.sin(angle)], -1) * rope.magnitude).astype("float32")
    heads, dim = one["heads"], one["head_dim"]
    wanted = {0: op.reference(q, **args)}
    args = [q, table, heads, dim, len(rope.frequencies), int(rope.style == "neox")]
    label = f"{rope.style}-{one['rows']}x{heads}x{dim}-{one['dims']}"
    return Case(label, "rope", ((heads + 7) // 8, one["rows"]), args, wanted, tolerance=1e-6, **given)


def cases():
    random = numpy.random.default_rng(1)
    for base in (10000.0, 1e6):
        frequencies = tuple(base ** (-2 * i / 128) for i in range(64))
        positions = numpy.array([0, 1, 2, 3, 1000, 131071, 131072, 1 << 20], "int32")
        yield angles(positions, op.Table(frequencies, 1.0, "neox"))
    quarter = numpy.pi / 4  # every octant and the places where they meet
    yield angles(numpy.arange(17, dtype="int32"), op.Table((quarter, quarter * 0.5, 1.0), 1.2, "neox"))
    yield angles(numpy.array([7], "int32"), op.Table(tuple(1.1**-i for i in range(65)), 0.7, "norm"))
    for one in [one for one in op.CASES if "first" not in one]:
        yield turned({**one, "rows": min(one["rows"], 3)}, random)
    yield turned({**op.CASES[2], "heads": 9}, random)


def bench():
    random = numpy.random.default_rng(1)
    for one in op.BENCH:
        made = turned(one, random, emulate=False)
        made.bytes = 8 * one["rows"] * one["heads"] * one["head_dim"]
        yield made
    frequencies = tuple(1e6 ** (-2 * i / 128) for i in range(64))
    for rows in (1, 512):
        made = angles(numpy.arange(rows, dtype="int32"), op.Table(frequencies, 1.0, "neox"), emulate=False)
        made.bytes = 8 * rows * 64
        yield made
