import numpy
from run import Case

from reflex.ops import softcap as op


def case(label, x, cap, **given):
    wanted = op.reference(x, cap=cap)
    return Case(label, "softcap", (x.size + 1023) // 1024, [x, x.size, cap], {0: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in op.CASES:
        (x,), args = op.inputs(one, random)
        yield case(f"{x.size}-{one['cap']}", x, args["cap"])
    x = numpy.concatenate([[0, -0.0], 10.0 ** numpy.arange(-30, 30), -(10.0 ** numpy.arange(-30, 30))]).astype("float32")
    yield case("extremes", x, 30.0)
    yield case("small", numpy.linspace(-0.8, 0.8, 1027, dtype="float32"), 2.0)  # both sides of where the series ends


def bench():
    x = numpy.random.default_rng(1).standard_normal(262144, "float32")
    made = case("262144", x, 30.0, emulate=False)
    made.bytes = 8 * x.size
    yield made
