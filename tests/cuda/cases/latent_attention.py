import numpy
from pages import LAYER_AT, PAGE, POISON, Attention
from run import Addresses, Case

from reflex.ops import latent_attention as op


class Latent(Attention):
    """An attention problem whose values are the first dimensions of its keys."""

    def __init__(self, rows, first, heads, key_dim, value_dim, **more):
        super().__init__(rows, first, heads, 1, key_dim, 0, **more)
        self.latent_dim = value_dim

    def stored(self, k, cached):
        """float16 pages as uint16 arrays: the first `cached` slots are filled, the rest is poison."""
        layer, pages = LAYER_AT * PAGE, []
        for start in range(0, self.count, PAGE):
            page = numpy.full(layer + PAGE * self.key_dim, POISON, numpy.float16)
            here = k[start : max(start, min(cached, start + PAGE))]
            page[layer : layer + here.size] = here.reshape(-1)
            pages.append(page.view(numpy.uint16))
        return pages

    def result(self):
        words = {"slots": self.slots, "positions": self.positions, "shared": self.shared, "branch": self.branch}
        keys, sizes = self.k.astype(numpy.float32), {"heads": self.heads, "key_dim": self.key_dim, "value_dim": self.latent_dim}
        return op.reference(self.q, keys, scale=self.scale, runs=self.runs, **sizes, **words)


def append(a, random):
    c = random.standard_normal((a.rows, a.key_dim), "float32")
    c[0, 0] = 1e6  # more than a float16 holds
    written = a.k.copy()
    written[a.first :] = numpy.clip(c, -65504, 65504)
    args = [c, a.cells, Addresses(a.stored(a.k, a.first)), a.key_dim, LAYER_AT]
    wanted = {2: a.stored(written, a.count)}
    return Case(f"append {a.rows}x{a.key_dim}", "latent_append", (a.rows,), args, wanted, tolerance=0)


def attend(label, a, splits=1, apart=False, emulate=True):
    wanted = a.result()
    state = [a.cells, a.lists(), a.positions, a.shared, a.branch, Addresses(a.stored(a.k, a.count))]
    partials = numpy.full((a.rows * a.heads, splits, a.latent_dim + 2), numpy.nan, "f4")
    counters = numpy.zeros(a.rows * a.heads, "u4")
    sizes = [splits, a.heads, a.key_dim, a.latent_dim, LAYER_AT, a.scale]
    args = [a.q, numpy.full_like(wanted, numpy.nan), *state, partials, counters, *sizes]
    grid, result = (a.heads, splits if apart else 1, a.rows), {1: wanted, 9: counters}
    return Case(label, "latent_attention", grid, args, result, tolerance=2e-5, emulate=emulate)


def cases():
    random = numpy.random.default_rng(5)
    for rows, first, dim in ((1, 0, 6), (3, 255, 40), (2, 300, 576)):
        yield append(Latent(rows, first, 1, dim, dim - 2), random)
    yield attend("one slot", Latent(1, 0, 2, 24, 16))
    yield attend("two tiles", Latent(1, 300, 1, 40, 32, peak=3.0))
    yield attend("rows", Latent(3, 254, 2, 40, 32))
    long = Latent(2, 700, 2, 24, 16, peak=3.0)
    for splits, apart in ((2, False), (2, True), (5, True), (5, False)):
        yield attend(f"{splits} parts{' apart' * apart}", long, splits, apart)
    yield attend("wide", Latent(1, 5, 1, 576, 512))
    yield attend("branches", Latent(4, 40, 1, 24, 16, branches=2))
    tree = {"shared": [20] * 3, "branch": [24, 24, 26], "positions": [20, 21, 22], "runs": [(), (), ((24, 26),)]}
    yield attend("tree", Latent(3, 24, 2, 24, 16, tree=tree))


def bench():
    for rows, first, splits in ((1, 2047, 1), (1, 2047, 16), (1, 16383, 16), (512, 0, 16)):
        label = f"{rows} behind {first}, {splits} parts"
        made = attend(label, Latent(rows, first, 16, 576, 512), splits, rows == 1, emulate=False)
        made.bytes = 2 * 576 * (first + rows)
        yield made
