"""Cases of attention: a paged cache, the request block, and what ops/attention.py says of them."""

import numpy
from run import Case

from reflex.ops import attention, head_rmsnorm, rope

PAGE = 256  # slots
POISON = 60000.0  # what nobody may read
SINKS = 128  # flag
TREE = "shared", "branch", "positions"
LAYER_AT = 3  # place of the layer in a page, in units of 512 bytes
REST, RING = 256, 1024  # flag: keys and values of the batch's slots have a second part, in a ring of so many


class Attention:
    """One attention problem: `rows` queries whose own slots follow `first` cached ones. Branches as in ops/attention.py:
    `branches` candidates of equal length packed behind a prompt of `first` slots (0: plain text); `tree`: lists of shared, branch,
    positions and runs by name. `window`: as kernels take it, negative for chunks."""

    def __init__(
        self, rows, first, heads, kv_heads, key_dim, value_dim, window=0, softcap=0.0, branches=0, seed=0, peak=1.0, tree=None,
        sinks=False,
    ):  # fmt: skip
        self.random = numpy.random.default_rng(seed)
        self.rows, self.first, self.heads, self.kv_heads = rows, first, heads, kv_heads
        self.key_dim, self.value_dim, self.window, self.softcap = key_dim, value_dim, window, softcap
        self.count = first + rows
        self.slots = numpy.arange(first, self.count, dtype=numpy.int32)
        self.scale = key_dim**-0.5
        self.runs = [()] * rows
        if branches:
            length = -(-rows // branches)
            begin = self.slots - (self.slots - first) % length
            self.shared, self.branch = numpy.full(rows, first, numpy.int32), begin.astype(numpy.int32)
            self.positions = (first + self.slots - begin).astype(numpy.int32)
        elif tree:
            self.shared, self.branch, self.positions = (numpy.array(tree[name], numpy.int32) for name in TREE)
            self.runs = tree["runs"]
        else:
            self.shared, self.branch, self.positions = numpy.zeros(rows, numpy.int32), numpy.zeros(rows, numpy.int32), self.slots
        self.cells = numpy.zeros(16, numpy.int32)
        self.cells[:5] = rows, first, rows, 0, int((self.branch == 0).sum())
        self.q = peak * self.random.standard_normal((rows, heads * key_dim), "float32")
        self.k = self.random.standard_normal((self.count, kv_heads * key_dim), "float32").astype(numpy.float16)
        self.v = self.random.standard_normal((self.count, kv_heads * value_dim), "float32").astype(numpy.float16)
        self.sinks = 3 * self.random.standard_normal(heads, "float32") if sinks else None

    def sink_words(self):
        """What kernels take for them: the array, and its flag."""
        return (numpy.zeros(0, numpy.float32), 0) if self.sinks is None else (self.sinks, SINKS)

    def lists(self):
        """Where the runs of each row are listed, then the lists (kernels/cuda/attention_tree.py)."""
        places, words = [], []
        for runs in self.runs:
            places.append(self.rows + len(words))
            words += [number for first, end in runs for number in (first, end - first)]
        return numpy.array([*places, *words], numpy.int32)

    def wanted(self, q=None, k=None, v=None, rows=None):
        """The reference's result for the given rows (all), from float16 keys and values."""
        rows = range(self.rows) if rows is None else rows
        k, v = (self.k if k is None else k), (self.v if v is None else v)
        return attention.reference(
            (self.q if q is None else q)[list(rows)], k.astype(numpy.float32), v.astype(numpy.float32), self.sinks,
            heads=self.heads, kv_heads=self.kv_heads, key_dim=self.key_dim, value_dim=self.value_dim, scale=self.scale,
            window=max(self.window, 0), chunk=max(-self.window, 0), softcap=self.softcap, slots=[int(self.slots[r]) for r in rows],
            positions=self.positions[list(rows)],
            shared=self.shared[list(rows)], branch=self.branch[list(rows)], runs=[self.runs[r] for r in rows],
        )  # fmt: skip

    def pages(self, k, v, cached):
        """float16 pages as uint16 arrays: the first `cached` slots are filled, the rest is poison."""
        layer = LAYER_AT * PAGE
        middle = layer + self.kv_heads * PAGE * self.key_dim
        pages = []
        for start in range(0, self.count, PAGE):
            page = numpy.full(middle + self.kv_heads * PAGE * self.value_dim, POISON, numpy.float16)
            keys = page[layer:middle].reshape(self.kv_heads, PAGE, self.key_dim)
            values = page[middle:].reshape(self.kv_heads, PAGE, self.value_dim)
            here = slice(start, max(start, min(cached, start + PAGE)))
            keys[:, : here.stop - start] = k[here].reshape(-1, self.kv_heads, self.key_dim).transpose(1, 0, 2)
            values[:, : here.stop - start] = v[here].reshape(-1, self.kv_heads, self.value_dim).transpose(1, 0, 2)
            pages.append(page.view(numpy.uint16))
        return pages


    def rings(self, words):
        """Views float16 [kv_heads, RING, dim] of the second parts of keys and of values in `words`."""
        middle = self.kv_heads * RING * self.key_dim
        halves = words.view(numpy.float16)
        return halves[:middle].reshape(self.kv_heads, RING, -1), halves[middle:].reshape(self.kv_heads, RING, -1)

    def ring(self, k=None, v=None):
        """uint32 words of the second parts [slots of the batch, kv_heads * dim]; poison elsewhere."""
        words = numpy.full(RING * self.kv_heads * (self.key_dim + self.value_dim) // 2, POISON, numpy.float32)
        words = words.astype(numpy.float16).repeat(2).view(numpy.uint32)
        for ring, values in zip(self.rings(words), (k, v), strict=True):
            if values is not None:
                ring[:, self.slots % RING] = values.reshape(self.rows, self.kv_heads, -1).transpose(1, 0, 2)
        return words


class Inputs:
    """Plain products q, k, v of an Attention's rows, and what head norm and rotation make of them."""

    def __init__(self, a, dims, style="neox", q_norm=True, k_norm=True, after=False, eps=1e-6):
        random, rows = a.random, a.rows
        self.q = random.standard_normal((rows, a.heads * a.key_dim), "float32")
        self.k = random.standard_normal((rows, a.kv_heads * a.key_dim), "float32")
        self.v = random.standard_normal((rows, a.kv_heads * a.value_dim), "float32")
        self.q_norm, self.k_norm = (1 + 0.3 * random.standard_normal(a.key_dim, "float32") for _ in range(2))
        self.eps, self.pairs = eps, dims // 2
        self.flags = q_norm | k_norm << 1 | after << 2 | (style == "neox") << 3
        table = rope.Table(tuple(10000.0 ** (-2 * i / max(dims, 1)) for i in range(dims // 2)), 1.1, style)
        angle = a.positions[:, None].astype(float) * numpy.array(table.frequencies)
        self.angles = (1.1 * numpy.stack([numpy.cos(angle), numpy.sin(angle)], -1)).astype(numpy.float32)
        if not dims:
            self.angles = numpy.zeros((1, 1, 2), numpy.float32)

        def turned(x, w, heads, normed):
            words = {"heads": heads, "head_dim": a.key_dim}
            if normed and not after:
                x = head_rmsnorm.reference(x, w, eps=eps, **words)
            if dims:
                x = rope.reference(x, positions=a.positions, rope=table, **words)
            return head_rmsnorm.reference(x, w, eps=eps, **words) if normed and after else x

        self.wanted_q = turned(self.q, self.q_norm, a.heads, q_norm)
        self.whole_k = turned(self.k, self.k_norm, a.kv_heads, k_norm)
        self.wanted_k = self.whole_k.astype(numpy.float16)
        self.wanted_v = self.v.astype(numpy.float16)


class CacheCase(Case):
    """Also compares the pages, argument `cache`: float16 equal up to `ulps`."""

    def __init__(self, *args, cache, pages, ulps=1, **words):
        super().__init__(*args, **words)
        self.cache, self.pages, self.ulps = cache, pages, ulps

    def check(self, args):
        yield from super().check(args)
        for page, (found, wanted) in enumerate(zip(args[self.cache].arrays, self.pages, strict=True)):
            found, wanted = (a.view(numpy.float16).astype(numpy.float64) for a in (found, wanted))
            wrong = ~(numpy.abs(found - wanted) <= self.ulps * 2.0**-10 * numpy.maximum(numpy.abs(wanted), 2.0**-8))
            if wrong.any():
                yield f"{self.label}: page {page} differs in {int(wrong.sum())} of {wrong.size} places, first {int(wrong.argmax())}"


class Same(Case):
    """Also asks for equal bits of the arguments `found` and `like`, which launches before left."""

    def __init__(self, *args, found, like, **words):
        super().__init__(*args, **words)
        self.found, self.like = found, like

    def check(self, args):
        yield from super().check(args)
        found, like = (args[i].view(numpy.uint32) for i in (self.found, self.like))
        if not numpy.array_equal(found, like):
            rows = sorted({int(i) for i in numpy.nonzero(found != like)[0]})
            yield f"{self.label}: {int((found != like).sum())} of {found.size} values have other bits, in rows {rows}"


class RestCase(CacheCase):
    """Also compares what a cache and a ring hold together of the batch's keys and values, `whole`. ring: argument."""

    def __init__(self, *args, attention, whole, ring, **words):
        super().__init__(*args, **words)
        self.attention, self.whole, self.ring = attention, whole, ring

    def check(self, args):
        yield from super().check(args)
        a = self.attention
        halves = numpy.stack([page.view(numpy.float16)[LAYER_AT * PAGE :] for page in args[self.cache].arrays])
        middle = a.kv_heads * PAGE * a.key_dim
        for kind, ring, whole in zip((halves[:, :middle], halves[:, middle:]), a.rings(args[self.ring]), self.whole, strict=True):
            kept = kind.reshape(len(halves), a.kv_heads, PAGE, -1)[a.slots // PAGE, :, a.slots % PAGE]
            found = kept.astype(numpy.float64) + ring[:, a.slots % RING].transpose(1, 0, 2)
            yield from self._compare("both parts", found, whole.reshape(found.shape).astype(numpy.float64))
