import numpy
from run import Case


def cases():
    random = numpy.random.default_rng(1)
    for count in (1, 255, 257):
        x, y = (random.standard_normal(count, "float32") for _ in range(2))
        yield Case(str(count), "add", (count + 255) // 256, [x, y, count, 0.5], {0: x + numpy.float32(0.5) * y})
