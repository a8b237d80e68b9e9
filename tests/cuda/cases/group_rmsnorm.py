import numpy
from run import Case

from reflex.ops import group_rmsnorm, head_l2norm


def case(label, y, w, groups, size, divisor, eps, wanted, **options):
    weights = numpy.zeros(1, "float32") if w is None else w
    args = [y, weights, groups, size, divisor, int(w is not None), eps]
    return Case(label, "group_rmsnorm", (groups, len(y)), args, {0: wanted}, tolerance=group_rmsnorm.TOLERANCE, **options)


def group(one, random, **options):
    (y, w), words = group_rmsnorm.inputs(one, random)
    groups, size = one["groups"], one["size"]
    label = f"{one['rows']}x{groups}x{size}"
    return case(label, y, w, groups, size, size, one["eps"], group_rmsnorm.reference(y, w, **words), **options)


def length(one, random, **options):
    (q,), words = head_l2norm.inputs(one, random)
    heads, dim = one["heads"], one["head_dim"]
    label = f"length {one['rows']}x{heads}x{dim}"
    return case(label, q, None, heads, dim, 1, one["eps"], head_l2norm.reference(q, **words), **options)


def cases():
    random = numpy.random.default_rng(1)
    for make, op in ((group, group_rmsnorm), (length, head_l2norm)):
        for one in op.CASES:
            yield make({**one, "rows": min(one["rows"], 2)}, random)


def bench():
    for one in group_rmsnorm.BENCH:
        made = group(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["groups"] * one["size"]
        yield made
