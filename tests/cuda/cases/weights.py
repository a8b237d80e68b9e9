import numpy
from run import Case

from reflex.ops import gate_heads, route_scale, weigh


def weighed(one, random, **given):
    (x, w), _ = weigh.inputs(one, random)
    rows, n = x.shape
    args = [x, w, n, int(one["one"])]
    return Case(f"{rows}x{n}", "weigh", (-(-n // 256), rows), args, {0: weigh.reference(x, w)}, tolerance=1e-6, **given)


def routed(one, random, **given):
    (routes, s), words = route_scale.inputs(one, random)
    count = len(routes) * words["used"]
    wanted = {0: route_scale.reference(routes, s, **words)}
    args = [routes, s, words["used"], count]
    return Case(f"{count}", "route_scale", -(-count // 256), args, wanted, tolerance=1e-6, **given)


def gated(one, random, **given):
    (a, g), words = gate_heads.inputs(one, random)
    wanted = {0: gate_heads.reference(a, g, **words)}
    return Case(f"{a.shape}", "gate_heads", (words["heads"], len(a)), [a, g, one["n"]], wanted, tolerance=1e-5, **given)


def cases():
    random = numpy.random.default_rng(3)
    for make, op in ((weighed, weigh), (routed, route_scale), (gated, gate_heads)):
        for one in op.CASES:
            yield make({**one, "rows": min(one["rows"], 3)}, random)


def bench():
    random = numpy.random.default_rng(3)
    for make, op in ((weighed, weigh), (routed, route_scale), (gated, gate_heads)):
        made = make(op.BENCH[1], random, emulate=False)
        made.bytes = 2 * made.args[0].nbytes
        yield made
