import numpy
from run import Case

from reflex.ops import streams_begin, streams_correct, streams_end, streams_inject, streams_predict

MIXED = {"streams_predict": streams_predict, "streams_correct": streams_correct, "streams_inject": streams_inject}


def level(one, random, ending=False, **options):
    op = streams_end if ending else streams_begin
    (x, others), _ = op.inputs(one, random)
    if one["rows"] > 1:
        x[1], others[-1, : one["n"]] = 0, 0  # a row of nothing, and a stream
    wanted = op.reference(x, others)
    args = [x, others, numpy.full_like(wanted, numpy.nan), one["n"], x.shape[1], int(ending)]
    label = f"{'end' if ending else 'begin'} {one['rows']}x{one['n']}"
    return Case(label, "streams_level", one["rows"], args, {2: wanted}, tolerance=op.TOLERANCE, **options)


def mixed(name, one, random, **options):
    (s, *others), _ = MIXED[name].inputs(one, random)
    wanted = MIXED[name].reference(s, *others)
    out = [] if name == "streams_inject" else [numpy.full_like(wanted, numpy.nan)]
    args, n = [s, *others, *out], one["n"]
    place = len(args) - 1 if out else 0
    grid = -(-n // 256), one["rows"]
    return Case(f"{one['rows']}x{n}", name, grid, [*args, n], {place: wanted}, tolerance=MIXED[name].TOLERANCE, **options)


def cases():
    random = numpy.random.default_rng(1)
    for rows, n in ((1, 1), (2, 33), (1, 1030)):
        one = {"rows": rows, "n": n}
        yield level(one, random)
        yield level(one, random, ending=True)
    for one in streams_begin.CASES:
        for name in MIXED:
            yield mixed(name, {**one, "rows": min(one["rows"], 2)}, random)


def bench():
    random = numpy.random.default_rng(1)
    for one in streams_begin.BENCH:
        for made in (level(one, random, emulate=False), *(mixed(name, one, random, emulate=False) for name in MIXED)):
            made.bytes = sum(arg.nbytes for arg in made.args if isinstance(arg, numpy.ndarray))
            yield made
