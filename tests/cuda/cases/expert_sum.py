import numpy
from run import Case

from reflex.ops import expert_sum as op


def case(words, random, mode=0, scale=0.5, emulate=True):
    (x, routes), settings = op.inputs(words, random)
    wanted = op.reference(x, routes, **settings)
    out = random.standard_normal(wanted.shape, "float32")
    wanted = out + scale * wanted if mode else wanted
    n, used = words["n"], words["used"]
    mode += 2 * ("weighted" in words)
    args = [x, routes, out, n, used, mode, scale]
    label = f"{len(x)}x{used}x{n}-{mode}"
    return Case(label, "expert_sum", (-(-n // 1024), len(x)), args, {2: wanted}, tolerance=1e-6, emulate=emulate)


def cases():
    random = numpy.random.default_rng(37)
    for number, words in enumerate(op.CASES):
        yield case(words, random, mode=number % 2)


def bench():
    random = numpy.random.default_rng(38)
    for words in op.BENCH:
        made = case(words, random, emulate=False)
        made.bytes = made.args[0].nbytes + made.args[2].nbytes
        yield made
