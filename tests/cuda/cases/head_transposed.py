import numpy
from run import Case

from reflex.ops import head_linear as op


def case(one, random, kernel="head_transposed", **options):
    """`skipped` rows lie behind those of every head, and as many before, where the launch begins."""
    (x, w), words = op.inputs({**one, "transposed": True}, random)
    heads, dim, (used, columns), skipped = one["heads"], words["head_dim"], w.shape[1:], one.get("skipped", 0)
    stored = numpy.full((heads, used + 2 * skipped, columns), numpy.nan, "f4")
    stored[:, skipped : skipped + used] = w
    wanted = op.reference(x, w, **words)
    rows, width = len(x), wanted.shape[1] // heads
    place = stored.reshape(-1)[skipped * columns :]
    args = [x, place, numpy.full_like(wanted, numpy.nan), rows, heads, dim, used, columns, stored[0].size]
    grid = -(-width // 128), heads, -(-rows // (64 if kernel.endswith("many") else 4))
    label = f"{rows}x{heads}x{used}x{columns}"
    return Case(label, kernel, grid, args, {2: wanted}, tolerance=op.TOLERANCE, **options)


def cases():
    random = numpy.random.default_rng(1)
    sizes = (1, 1, 32, 1, 0), (1, 4, 32, 7, 8), (2, 3, 64, 16, 0), (7, 2, 40, 9, 64), (5, 2, 130, 8, 5)
    for number, (rows, heads, columns, used, rest) in enumerate(sizes):
        one = {"rows": rows, "heads": heads, "in": columns, "out": used, "rest": rest, "skipped": number % 3}
        yield case(one, random)
        yield case(one, random, "head_transposed_many")
    yield case({"rows": 66, "heads": 2, "in": 131, "out": 34, "rest": 3, "skipped": 1}, random, "head_transposed_many")
    for kernel in ("head_transposed", "head_transposed_many"):
        yield case({"rows": 300, "heads": 16, "in": 512, "out": 128, "rest": 64}, random, kernel, emulate=False)


def bench():
    for rows, many in ((1, ""), (16, ""), (16, "_many"), (512, "_many")):
        one = {"rows": rows, "heads": 16, "in": 512, "out": 128, "rest": 64, "skipped": 64}
        made = case(one, numpy.random.default_rng(1), "head_transposed" + many, emulate=False)
        made.bytes = 4 * 16 * 128 * 512 + 4 * rows * 16 * (192 + 576)
        yield made
