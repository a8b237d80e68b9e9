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


def tile_bytes(key_dim):
    """Of queries, two tiles of slots and weights."""
    return 2 * 64 * 3 * key_dim + 2 * 64 * 64


def on_tiles(label, a, tokens=1, flags=0, reference=True, emulate=True, tolerance=1e-3):
    """One launch of latent_attention_tile, `tokens` to a block. Flags 16: of the plain rows only, 1: of the others."""
    wanted = a.result() if reference else numpy.empty((a.rows, a.heads * a.latent_dim), "f4")
    out, kept = numpy.full_like(wanted, numpy.nan), {16: slice(a.cells[4], None), 1: slice(a.cells[4])}.get(flags, slice(0))
    out[kept] = wanted[kept] = 0.5
    together = -(-a.heads // -(-a.heads // 64))
    state = [a.cells, a.lists(), a.positions, a.shared, a.branch, Addresses(a.stored(a.k, a.count))]
    args = [a.q, out, numpy.zeros(0, "f4"), *state, a.heads, together, tokens, LAYER_AT, flags, a.scale]
    name, grid = f"latent_attention_tile_{a.key_dim}_{a.latent_dim}", (-(-a.rows // tokens), -(-a.heads // together))
    result = {1: wanted} if reference else {}
    return Case(label, name, grid, args, result, tile_bytes(a.key_dim), tolerance=tolerance, emulate=emulate)


class Split(Case):
    """Compares what the splits hold together; arguments 1 and 2: sums and facts."""

    def __init__(self, *args, whole, **words):
        super().__init__(*args, {}, **words)
        self.whole = whole

    def check(self, args):
        sums, (tops, totals) = args[1].astype("f8"), numpy.moveaxis(args[2].astype("f8"), -1, 0)
        weights = numpy.where(totals > 0, 2.0 ** (tops - tops.max(0)), 0)
        joined = numpy.where(weights > 0, sums.transpose(3, 0, 1, 2) * weights, 0).sum(1) / (weights * totals).sum(0)
        yield from self._compare("all splits", joined.transpose(1, 2, 0).reshape(self.whole.shape), self.whole)


def split(label, a, splits, reference=True, emulate=True):
    """One launch of latent_attention_tile with splits."""
    one = on_tiles(label, a, reference=reference, emulate=emulate)
    sums = numpy.full((splits, a.rows, a.heads, a.latent_dim), numpy.nan, "f4")
    facts = numpy.full((*sums.shape[:3], 2), numpy.nan, "f4")
    args, grid = [a.q, sums, facts, *one.args[3:]], (*one.grid[:2], splits)
    return Split(label, one.kernel, grid, args, shared=one.shared, whole=one.wanted.get(1), tolerance=1e-3, emulate=emulate)


def join(label, rows, heads, value_dim, splits, used, random, emulate=True):
    sums, facts = random.standard_normal((splits, rows, heads, value_dim), "f4"), numpy.empty((splits, rows, heads, 2), "f4")
    facts[..., 0], facts[..., 1] = 9 * random.standard_normal((splits, rows, heads)), random.uniform(1, 9, (splits, rows, heads))
    sums[used:], facts[used:] = numpy.nan, (-1e29, 0)
    weights = 2.0 ** (facts[:used, ..., 0] - facts[:used, ..., 0].max(0)).astype("f8")
    mixed = (sums[:used].astype("f8") * weights[..., None]).sum(0) / (weights * facts[:used, ..., 1]).sum(0)[..., None]
    args = [sums, facts, numpy.full((rows, heads * value_dim), numpy.nan, "f4"), value_dim, splits]
    wanted = {2: mixed.reshape(rows, -1)}
    return Case(label, "latent_attention_join", (heads, rows), args, wanted, tolerance=1e-5, emulate=emulate)


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
    yield from tiles()


def tiles():
    yield on_tiles("a tile's first slot", Latent(1, 0, 3, 320, 256))
    yield on_tiles("dim 576", Latent(3, 62, 16, 576, 512), tokens=2)
    yield on_tiles("20 heads", Latent(5, 250, 20, 320, 256), tokens=3)
    yield on_tiles("many heads", Latent(2, 30, 70, 320, 256))
    yield on_tiles("large scores", Latent(2, 130, 4, 320, 256, peak=40.0), tokens=2, tolerance=5e-3)
    yield on_tiles("branches beside each other", Latent(6, 140, 16, 320, 256, branches=3), tokens=4)
    for flags in (16, 1):
        tree = {"shared": [0, 0, 20, 20, 20], "branch": [0, 0, 24, 24, 26], "positions": [22, 23, 20, 21, 22]}
        tree["runs"] = [(), (), (), (), ((24, 26),)]
        a = Latent(5, 22, 4, 320, 256, tree=tree)
        yield on_tiles(f"a tree, flags {flags}", a, tokens=flags and 1, flags=flags)
    yield split("three splits", Latent(2, 150, 5, 320, 256), 3)
    yield split("more splits than tiles", Latent(1, 70, 16, 576, 512), 4)
    yield split("splits of branches", Latent(4, 80, 2, 320, 256, branches=2), 2)
    yield split("many splits", Latent(3, 5000, 16, 576, 512), 32, emulate=False)
    random = numpy.random.default_rng(6)
    for heads, dim, splits, used in ((3, 256, 2, 1), (2, 512, 9, 9), (1, 256, 32, 20)):
        yield join(f"{used} of {splits} splits", 2, heads, dim, splits, used, random)
    for heads, tokens in ((16, 4), (16, 1), (40, 1), (128, 1)):
        yield on_tiles(f"many rows of {heads} heads, {tokens}", Latent(150, 777, heads, 576, 512), tokens, emulate=False)
    yield on_tiles("many branches", Latent(96, 577, 16, 576, 512, branches=8), 4, emulate=False)
    yield on_tiles("many branches apart", Latent(96, 577, 16, 576, 512, branches=8), flags=1, emulate=False)


def bench():
    for rows, first, splits in ((1, 2047, 16), (1, 16383, 16), (16, 2047, 16)):
        label = f"{rows} behind {first}, {splits} parts"
        made = attend(label, Latent(rows, first, 16, 576, 512), splits, True, emulate=False)
        made.bytes = 2 * 576 * (first + rows)
        yield made
    for rows, first, heads, splits in ((1, 2047, 16, 32), (1, 16383, 16, 32), (16, 2047, 16, 8), (1, 2047, 128, 32)):
        yield split(f"{heads} heads, {rows} behind {first}, {splits} splits", Latent(rows, first, heads, 576, 512), splits, False)
        yield join(f"{heads} heads, {rows} rows, {splits} splits", rows, heads, 512, splits, splits, numpy.random.default_rng(1))
    many = (512, 0, 16, 4), (512, 1500, 16, 4), (20, 2000, 16, 1), (512, 0, 128, 1), (512, 1500, 128, 1)
    for rows, first, heads, tokens in many:
        label, a = f"{heads} heads, {rows} behind {first}, {tokens} a block", Latent(rows, first, heads, 576, 512)
        made = on_tiles(label, a, tokens, reference=False)
        made.flops = 2 * (576 + 512) * heads * rows * (first + (rows + 1) / 2)
        yield made
