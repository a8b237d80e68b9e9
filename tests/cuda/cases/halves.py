import numpy
from run import Case

ORDER = numpy.array([0, 2, 1, 3])


def halves(x, norm, eps):
    """(xh, factor) of rows of float32; norm: weights of an RMSNorm, or None."""
    xh, factor, _ = split(x, norm, eps)
    return xh, factor


def split(x, norm, eps):
    """(xh, factor, xl): what the halves leave comes 2**11 times as large."""
    y = x.astype("f4")
    if norm is not None:
        y = (x * (1 / numpy.sqrt((x.astype("f8") ** 2).mean(1, keepdims=True) + eps)).astype("f4") * norm).astype("f4")
    y = numpy.pad(y, ((0, 0), (0, -x.shape[1] % 32)))
    most = numpy.abs(y).max(1)
    e = numpy.where(most > 0, numpy.floor(numpy.log2(numpy.maximum(most, 2.0**-112))) - 14, 0)
    factor = (2.0**e).astype("f4")
    y = y / factor[:, None]
    xh = y.astype("f2")
    return xh, factor, ((y - xh.astype("f4")) * numpy.float32(2**11)).astype("f2")


def stored(xh):
    """Words of xh in the order of the kernels."""
    rows, columns = xh.shape
    return numpy.ascontiguousarray(xh.reshape(rows, columns // 4, 4)[:, :, ORDER]).reshape(rows, columns).view("u4")


def case(label, x, norm, eps, stride=None, emulate=True):
    """Halves of normed rows may be rounded otherwise where a root of another machine is: their sum with what they leave counts."""
    rows, columns = x.shape
    xh, factor, xl = split(x, norm, eps)
    padded, stride = xh.shape[1], stride or columns
    wide = numpy.full((rows, stride), numpy.nan, "f4")
    wide[:, :columns] = x

    def args(both):
        out, rest = (numpy.full((rows, padded // 2), 0x7F7F7F7F, "u4") for _ in range(2))
        scales = [numpy.full(rows, numpy.nan, "f4") for _ in range(2)]
        given = [wide, x[0] if norm is None else norm, int(norm is not None), eps, columns, stride]
        return [*given, out, scales[0], int(both), rest, scales[1]]

    if norm is None:
        yield Case(label, "halves", rows, args(False), {6: stored(xh)}, emulate=emulate, tolerance=0)
        yield Case(f"{label}-rest", "halves", rows, args(True), {6: stored(xh), 9: stored(xl)}, emulate=emulate, tolerance=0)
    else:
        yield Normed(f"{label}-rest", "halves", rows, args(True), {6: stored(xh), 9: stored(xl)}, emulate=emulate, tolerance=1e-6)
    wanted = {7: factor, 10: factor * numpy.float32(2**-11)}
    yield Case(f"{label}-factors", "halves", rows, args(True), wanted, emulate=emulate, tolerance=1e-6)


class Normed(Case):
    """Compares what both halves make together, and the first by itself."""

    def check(self, args):
        found, wanted = ([words.view("f2").astype("f8") for words in pair] for pair in ((args[6], args[9]), self.wanted.values()))
        yield from self._compare("the sum of the halves", found[0] + found[1] / 2**11, wanted[0] + wanted[1] / 2**11)
        if (found[0].reshape(wanted[0].shape) != wanted[0]).mean() > 0.01:
            yield f"{self.label}: more halves are rounded otherwise than a last bit of the root explains"


def cases():
    random = numpy.random.default_rng(7)
    shapes = (1, 1, 1, False), (2, 31, 33, True), (1, 96, 96, True), (3, 576, 580, False), (2, 2080, 2080, True)
    for rows, columns, stride, normed in shapes:
        x = random.standard_normal((rows, columns), "f4") * numpy.float32(10.0) ** random.integers(-6, 6, (rows, 1))
        norm = random.standard_normal(columns, "f4") if normed else None
        yield from case(f"{rows}x{columns}-{'norm' if normed else 'plain'}", x.astype("f4"), norm, 1e-6, stride)
    x = random.standard_normal((3, 64), "f4")
    x[0] = 0
    x[1] *= numpy.float32(1e-30)
    yield from case("zero-and-tiny", x, None, 1e-6)


def bench():
    random = numpy.random.default_rng(8)
    for rows, columns in ((32, 1024), (512, 1024), (512, 4096), (512, 12288)):
        x, norm = random.standard_normal((rows, columns), "f4"), random.standard_normal(columns, "f4")
        one = next(case(f"{rows}x{columns}", x, norm, 1e-6, emulate=False))
        one.bytes = rows * columns * 6
        yield one
