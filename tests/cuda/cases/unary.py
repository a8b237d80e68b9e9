import numpy
from run import Case

from reflex.ops import unary as op


def case(label, act, x, parameters, **given):
    wanted = op.reference(x, act=act, parameters=parameters)
    args = [x, x.size, *parameters, *[0.0] * (4 - len(parameters))]
    return Case(label, f"unary_{act}", (x.size + 1023) // 1024, args, {0: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for act in op.ACTIVATIONS:
        for count in (1, 31, 256, 1029):
            (x,), words = op.inputs({"rows": 1, "n": count, "act": act}, random)
            yield case(str(count), act, x[0], words["parameters"])
        x = numpy.array([0, -0.0, 1e-30, -1e-30, 1e-3, -1e-3, 80, -80, 100, -100], "float32")
        yield case("extremes", act, x, words["parameters"])
    for parameters in ((12.0, -7.0, 0.3, -1e-6), (-0.2, 3.0, 0.0, -0.5)):
        x = 4 * random.standard_normal(256, "float32")
        yield case(f"parameters {parameters}", "xielu", x, parameters)


def bench():
    random = numpy.random.default_rng(1)
    for act in op.ACTIVATIONS:
        for count in (8192, 512 * 8192):
            (x,), words = op.inputs({"rows": 1, "n": count, "act": act}, random)
            made = case(str(count), act, x[0], words["parameters"], emulate=False)
            made.bytes = 8 * count
            yield made
