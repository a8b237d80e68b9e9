import numpy
from run import Case

from reflex.ops import gated, group_rmsnorm, head_l2norm

WEIGHTED, GATED = 1, 2
ABSENT = numpy.zeros(1, "float32")


def case(label, y, w, o, groups, size, divisor, eps, wanted, **options):
    flags = WEIGHTED * (w is not None) + GATED * (o is not None)
    args = [y, *(ABSENT if part is None else part for part in (w, o)), groups, size, divisor, flags, eps]
    return Case(label, "group_rmsnorm", (groups, len(y)), args, {0: wanted}, tolerance=group_rmsnorm.TOLERANCE, **options)


def group(one, random, gate=False, **options):
    (y, w), words = group_rmsnorm.inputs(one, random)
    groups, size = one["groups"], one["size"]
    label = f"{one['rows']}x{groups}x{size}" + " gated" * gate
    o = random.standard_normal(y.shape, "float32") if gate else None
    made = gated.UNITS["silu"](y, o) if gate else y
    return case(label, y, w, o, groups, size, size, one["eps"], group_rmsnorm.reference(made, w, **words), **options)


def length(one, random, **options):
    (q,), words = head_l2norm.inputs(one, random)
    heads, dim = one["heads"], one["head_dim"]
    label = f"length {one['rows']}x{heads}x{dim}"
    return case(label, q, None, None, heads, dim, 1, one["eps"], head_l2norm.reference(q, **words), **options)


def cases():
    random = numpy.random.default_rng(1)
    for make, op in ((group, group_rmsnorm), (length, head_l2norm)):
        for one in op.CASES:
            yield make({**one, "rows": min(one["rows"], 2)}, random)
    for one in group_rmsnorm.CASES:
        yield group({**one, "rows": min(one["rows"], 2)}, random, gate=True)


def bench():
    for one in group_rmsnorm.BENCH:
        made = group(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["groups"] * one["size"]
        yield made
