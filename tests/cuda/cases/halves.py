import numpy
from run import Case

ORDER = numpy.array([0, 2, 1, 3])


def halves(x, norm, eps):
    """(xh, factor) of rows of float32; norm: weights of an RMSNorm, or None."""
    y = x.astype("f4") if norm is None else x * norm
    y = numpy.pad(y, ((0, 0), (0, -x.shape[1] % 32)))
    most = numpy.abs(y).max(1)
    e = numpy.where(most > 0, numpy.floor(numpy.log2(numpy.maximum(most, 2.0**-112))) - 14, 0)
    factor = (2.0**e).astype("f4")
    xh = (y / factor[:, None]).astype("f2")
    if norm is not None:
        factor = factor / numpy.sqrt((x.astype("f8") ** 2).mean(1) + eps)
    return xh, factor.astype("f4")


def stored(xh):
    """Words of xh in the order of the kernels."""
    rows, columns = xh.shape
    return numpy.ascontiguousarray(xh.reshape(rows, columns // 4, 4)[:, :, ORDER]).reshape(rows, columns).view("u4")


def case(label, x, norm, eps, stride=None, emulate=True):
    rows, columns = x.shape
    xh, factor = halves(x, norm, eps)
    padded, stride = xh.shape[1], stride or columns
    wide = numpy.full((rows, stride), numpy.nan, "f4")
    wide[:, :columns] = x
    out = numpy.full((rows, padded // 2), 0x7F7F7F7F, "u4")
    scales = numpy.full(rows, numpy.nan, "f4")
    args = [wide, x[0] if norm is None else norm, int(norm is not None), eps, columns, stride, out, scales]
    yield Case(label, "halves", rows, args, {6: stored(xh)}, emulate=emulate, tolerance=0)
    yield Case(f"{label}-factors", "halves", rows, args, {7: factor}, emulate=emulate, tolerance=1e-5)


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
