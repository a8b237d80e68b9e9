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


def attend(label, a, emulate=True):
    wanted = a.result()
    state = [a.cells, a.lists(), a.positions, a.shared, a.branch, Addresses(a.stored(a.k, a.count))]
    args = [a.q, numpy.full_like(wanted, numpy.nan), *state, a.heads, a.key_dim, a.latent_dim, LAYER_AT, a.scale]
    return Case(label, "latent_attention", (a.heads, a.rows), args, {1: wanted}, tolerance=2e-5, emulate=emulate)


def cases():
    random = numpy.random.default_rng(5)
    for rows, first, dim in ((1, 0, 6), (3, 255, 40), (2, 300, 576)):
        yield append(Latent(rows, first, 1, dim, dim - 2), random)
    yield attend("one slot", Latent(1, 0, 2, 24, 16))
    yield attend("two tiles", Latent(1, 300, 1, 40, 32, peak=3.0))
    yield attend("rows", Latent(3, 254, 2, 40, 32))
    yield attend("wide", Latent(1, 5, 1, 576, 512))
    yield attend("branches", Latent(4, 40, 1, 24, 16, branches=2))
    tree = {"shared": [20] * 3, "branch": [24, 24, 26], "positions": [20, 21, 22], "runs": [(), (), ((24, 26),)]}
    yield attend("tree", Latent(3, 24, 2, 24, 16, tree=tree))


def bench():
    for rows, first in ((1, 2047), (512, 0)):
        made = attend(f"{rows} behind {first}", Latent(rows, first, 16, 576, 512), emulate=False)
        made.bytes = 2 * 576 * (first + rows)
        yield made
