import numpy
from run import Case

from reflex.ops import gated, head_rmsnorm


def case(rows, heads, dim, act, random, **given):
    (o, w), args = head_rmsnorm.inputs({"rows": rows, "heads": heads, "head_dim": dim, "eps": 1e-6, "w": dim}, random)
    z = random.standard_normal(o.shape, "float32")
    wanted = gated.UNITS[act](z, head_rmsnorm.reference(o, w, **args))
    label, arguments = f"{rows}x{heads}x{dim} {act}", [o, w, z, heads, dim, 1e-6]
    return Case(label, f"head_rmsnorm_{act}", ((heads + 7) // 8, rows), arguments, {2: wanted}, **given)


def cases():
    random = numpy.random.default_rng(1)
    for rows, heads, dim in ((1, 1, 1), (1, 3, 31), (2, 9, 64), (3, 2, 128), (1, 2, 300)):
        for act in ("silu", "sigmoid"):
            yield case(rows, heads, dim, act, random)


def bench():
    for rows in (1, 512):
        made = case(rows, 32, 128, "silu", numpy.random.default_rng(1), emulate=False)
        made.bytes = 12 * rows * 32 * 128
        yield made
