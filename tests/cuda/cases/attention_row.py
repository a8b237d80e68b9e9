import numpy
from pages import LAYER_AT, REST, Attention, CacheCase, Inputs, Same
from run import Addresses

from reflex.ops.attention import CASES, forks

INPUTS, EARLY = 32, 64


def shared_bytes(key_dim, value_dim, tile):
    kw, vw = 16 * (-(-key_dim // 32)) + 4, 4 * (-(-value_dim // 8) | 1)
    return 4 * (tile * (kw + vw) + 16 * kw + max(16 * (tile // 2 + 4), 8 * max(key_dim, value_dim)))


MOST_PARTS = 64


def case(
    label, a, splits, tile=0, inputs=None, flags=0, kind="row", least=1, tolerance=2e-5, reference=True, rest=False, **words
):  # fmt: skip
    """One launch over a cache that holds every row's key and value, or with `inputs` all but the last. `kind` tree: attention_tree,
    with flag 16 of the rows behind the plain ones, and more than one of `splits` means as many as it takes. rest: keys and values
    of the batch have second parts, as large as one likes."""
    dim = a.key_dim if a.key_dim == a.value_dim and a.key_dim in (64, 128) else 0
    tile = tile or next(t for t in (128, 96, 64, 32) if shared_bytes(a.key_dim, a.value_dim, t) <= 100 << 10)
    if kind == "tree" and splits > 1:
        tiles = -(-a.count // tile)
        splits = max(2, -(-tiles // max(least, -(-tiles // MOST_PARTS))))
    nothing = numpy.zeros(1, numpy.float32)
    q, k, v = a.q, a.k.copy(), a.v.copy()
    given, norms, angles, pairs, eps = (nothing, nothing), (nothing, nothing), nothing, 0, 0.0
    wanted_q, cells, cached = q, a.cells.copy(), a.count
    if inputs is not None:
        q, wanted_q, given = inputs.q, inputs.wanted_q, (inputs.k, inputs.v)
        norms, angles, pairs, eps = (inputs.q_norm, inputs.k_norm), inputs.angles, inputs.pairs, inputs.eps
        k[a.first :], v[a.first :], cached = inputs.wanted_k, inputs.wanted_v, a.first
        flags |= INPUTS | inputs.flags
    sinks, sunk = a.sink_words()
    flags |= sunk
    lists = a.lists() if kind == "tree" else numpy.zeros(1, numpy.int32)
    parts = a.kv_heads * (-(-a.heads // a.kv_heads) + 7 >> 3)
    out = numpy.full((a.rows, a.heads * a.value_dim), numpy.nan, numpy.float32)
    ring, whole = numpy.zeros(1, "u4"), [k, v]
    if rest:
        random = numpy.random.default_rng(2)
        parts_of_both = [(0.1 * random.standard_normal(x[a.first :].shape)).astype("f2") for x in (k, v)]
        ring, whole = a.ring(*parts_of_both), [x.astype("f4") for x in (k, v)]
        for x, part in zip(whole, parts_of_both, strict=True):
            x[a.first :] += part.astype("f4")
        flags, dim = flags | REST, 0
    wanted = a.wanted(wanted_q, *whole) if reference else None
    if reference and flags & 16:
        out[: a.cells[4]] = wanted[: a.cells[4]] = 7.0  # rows that the kernel leaves alone
    partials = numpy.full(a.rows * parts * splits * (8 * a.value_dim + 16), numpy.nan, numpy.float32)
    counters = numpy.zeros(a.rows * parts, numpy.uint32)
    args = [
        q, *given, out, partials, counters, *norms, angles, sinks, cells, lists, a.positions, a.shared, a.branch,
        Addresses(a.pages(k, v, cached)), ring, q.shape[1], a.heads, a.kv_heads, a.key_dim, a.value_dim, pairs, LAYER_AT, a.window,
        tile, least, flags, a.scale, a.softcap, eps,
    ]  # fmt: skip
    return CacheCase(
        label, f"attention_{kind}_{dim or 'any'}", (parts, splits, a.rows), args,
        {3: wanted, 5: counters} if reference else {}, shared=shared_bytes(a.key_dim, a.value_dim, tile),
        tolerance=tolerance, cache=15, pages=a.pages(k, v, a.count), **words,
    )  # fmt: skip


def apart(label, a, **words):
    """attention_tree with a block for each part of a row, and before it with one for all of a row's: equal bits."""
    one = case(label, a, 2, kind="tree", **words)
    count, args = len(one.args), [*one.args, one.args[3].copy()]
    before = [(one.kernel, (one.grid[0], 1, one.grid[2]), one.shared, [*range(3), count, *range(4, count)])]
    words = {"shared": one.shared, "tolerance": one.tolerance, "emulate": one.emulate}
    words |= {"before": before, "picks": range(count), "found": 3, "like": count}
    return Same(label, one.kernel, one.grid, args, one.wanted, **words)


def declared():
    """The operation's own cases: the last two rows, but trees whole."""
    for c in CASES:
        rows = c["rows"] if c["branch"] == "tree" else min(c["rows"], 2)
        first = c["first"] + c["rows"] - rows
        c = {**c, "window": c["window"] or -c.get("chunk", 0)}  # as kernels take it
        sizes = (c[name] for name in ("heads", "kv_heads", "key_dim", "value_dim", "window", "softcap"))
        tree = behind(forks(first - 3, first, rows), first - 3) if c["branch"] == "tree" else None
        a = Attention(rows, first, *sizes, branches=2 * (c["branch"] == "branch"), tree=tree, sinks=c["sinks"])
        yield case("declared " + " ".join(str(v) for v in c.values()), a, 2, kind="tree" if tree else "row")


def behind(words, prompt):
    return words | {"shared": [prompt] * len(words["branch"])}


def cases():
    yield from declared()
    for count in (1, 31, 33, 129, 255, 256, 257, 600):
        a = Attention(1, count - 1, 2, 1, 64, 64, seed=count)
        yield case(f"{count} slots", a, 4)
    for group in (1, 2, 3, 7, 8, 9, 16):
        a = Attention(1, 99, group, 1, 64, 64, seed=group)
        yield case(f"group of {group}", a, 1)
    for dim in (1, 8, 16, 33, 80, 96, 128):
        a = Attention(1, 140, 4, 2, dim, dim, seed=dim)
        yield case(f"dim {dim}", a, 2)
    a = Attention(1, 299, 2, 1, 128, 128, peak=30.0)
    yield case("one split takes all tiles", a, 1, tile=64)
    yield case("splits of three tiles", a, 2, tile=64)
    yield case("at least two tiles", a, 5, tile=64, least=2)
    a = Attention(1, 300, 4, 2, 64, 64, window=100, softcap=7.0)
    yield case("window and cap", a, 3)
    for count, chunk in ((257, 64), (256, 64), (260, 100), (1, 7)):
        a = Attention(1, count - 1, 4, 2, 64, 64, window=-chunk)
        yield case(f"{count} slots in chunks of {chunk}", a, 3)
        yield case(f"{count} slots in chunks of {chunk}, early", a, 3, inputs=Inputs(a, 64), flags=EARLY, tolerance=5e-4)
    a = Attention(6, 300, 2, 1, 64, 64, branches=3)
    yield case("branches", a, 4)
    a = Attention(6, 280, 2, 1, 64, 64, branches=3, window=24)
    yield case("branches in a window", a, 2)
    yield from trees()
    yield from sunk()
    yield case("with the rest", Attention(5, 0, 4, 2, 24, 24), 1, rest=True)
    yield case("with the rest, behind others", Attention(3, 130, 2, 1, 64, 64, softcap=7.0), 2, tile=64, rest=True)
    yield case("with the rest, around the ring", Attention(4, 1022, 2, 2, 16, 33, window=9, sinks=True), 1, rest=True)
    for flags in (0, EARLY):
        name = "early" if flags else "inputs"
        for first in (0, 99, 128, 255, 256):
            a = Attention(1, first, 4, 2, 128, 128, seed=first)
            yield case(f"{name} at {first}", a, 3, inputs=Inputs(a, 128), flags=flags, tolerance=5e-4)
        a = Attention(1, 300, 18, 2, 64, 64)
        yield case(f"{name} group of 9", a, 2, inputs=Inputs(a, 64, "norm", False, False), flags=flags, tolerance=5e-4)
        a = Attention(1, 70, 2, 1, 80, 40)
        yield case(f"{name} two widths", a, 2, tile=32, inputs=Inputs(a, 34, after=True), flags=flags, tolerance=5e-4)
        a = Attention(1, 70, 2, 2, 33, 31)
        yield case(f"{name} odd widths", a, 2, inputs=Inputs(a, 32), flags=flags, tolerance=5e-4)
    for group in (2, 4):
        for count in (1000, 5000):
            a = Attention(1, count - 1, 8 * group, 8, 128, 128, seed=count)
            words = {"inputs": Inputs(a, 128), "flags": EARLY, "tolerance": 5e-4, "emulate": False}
            yield case(f"{count} slots, 8 key heads of {group}", a, 16, **words)
    yield case("16 rows", Attention(16, 500, 16, 8, 128, 128), 4, emulate=False)
    yield case("wide heads", Attention(16, 1000, 4, 1, 256, 256, window=512), 16, emulate=False)
    yield case("widest heads", Attention(3, 300, 4, 1, 512, 512), 8, emulate=False)


def trees():
    """Prompts that end around the edges of tiles and pages, some of it in the same batch, then a tree."""
    for first in (1, 60, 63, 64, 127, 128, 253, 255, 256):
        a = Attention(9, first, 2, 1, 64, 64, seed=first, tree=behind(forks(first, first, 9), first))
        yield case(f"tree behind {first}", a, 2, kind="tree")
    yield case("tree of long runs", long_runs(40, 130), 3, tile=64, kind="tree")
    yield case("tree in a window", long_runs(40, 130, window=70), 1, tile=64, kind="tree")
    yield case("tree in a narrow window", long_runs(40, 30, window=5, dim=16), 2, kind="tree")
    yield case("tree in chunks", long_runs(14, 130, window=-32), 1, tile=64, kind="tree")
    yield case("tree in short chunks", long_runs(12, 30, window=-5, dim=16), 2, kind="tree")
    yield case("tree, dim 128", long_runs(30, 100, dim=128, softcap=5.0), 2, kind="tree")
    yield case("tree, two widths", long_runs(20, 10, dim=33), 1, kind="tree")
    yield case("rows behind the plain ones", long_runs(12, 6, plain=5), 2, kind="tree", flags=16)
    yield case("plain rows by the kernel of trees", Attention(3, 62, 2, 1, 64, 64), 2, kind="tree")
    yield apart("parts of one tile", long_runs(7, 300), tile=64)
    yield apart("parts of two tiles, window and cap", long_runs(5, 500, window=400, softcap=7.0, heads=4), tile=64, least=2)
    yield apart("parts, two widths and sinks", long_runs(5, 130, dim=33, sinks=True), tile=32, least=2)
    yield apart("more tiles than parts", Attention(1, 2100, 1, 1, 8, 8), tile=32)
    yield apart("behind plain rows", long_runs(9, 150, plain=4), tile=64, flags=16)
    for dim, heads, kv_heads in ((128, 16, 8), (128, 32, 8), (64, 16, 8), (256, 8, 4)):
        for prompt in (200, 1000, 2485, 8000):
            a = long_runs(6, prompt, dim=dim, heads=heads, kv_heads=kv_heads, plain=1)
            yield apart(f"{heads} heads of {dim} behind {prompt}", a, least=2, flags=16, reference=False, emulate=False)
    yield case("a large tree", long_runs(400, 777, dim=128, heads=8, kv_heads=4), 1, kind="tree", emulate=False)


def sunk():
    """Sinks: counted once however many splits there are, for every head of a group, in a window, in trees, beside large scores."""
    for splits in (1, 2, 4):
        yield case(f"sinks, {splits} splits", Attention(1, 299, 4, 2, 64, 64, sinks=True, seed=splits), splits, tile=64)
    yield case("sinks, group of 9", Attention(1, 99, 18, 2, 64, 64, sinks=True), 2)
    yield case("sinks, group of 8, dim 128", Attention(3, 140, 8, 1, 128, 128, sinks=True), 2)
    yield case("sinks, window and cap", Attention(1, 300, 4, 2, 64, 64, window=100, softcap=7.0, sinks=True), 3)
    yield case("sinks beside large scores", Attention(2, 70, 2, 1, 64, 64, peak=30.0, sinks=True), 1)
    a = Attention(1, 130, 4, 2, 64, 64, window=128, sinks=True)
    yield case("sinks, inputs", a, 2, inputs=Inputs(a, 64, "neox", False, False), flags=EARLY, tolerance=5e-4)
    yield case("sinks, tree", long_runs(12, 100, sinks=True), 2, kind="tree")
    yield case("sinks behind the plain rows", long_runs(12, 6, plain=5, sinks=True), 2, kind="tree", flags=16)


def long_runs(rows, prompt, plain=0, dim=64, heads=2, kv_heads=1, **words):
    """Every third row begins a branch, in the middle of all before. The first `plain` rows end the prompt."""
    first = prompt - plain
    tree = {"shared": [0] * plain, "branch": [0] * plain, "positions": list(range(first, prompt)), "runs": [()] * plain}
    for row in range(plain, rows):
        slot, parent = first + row, row - 1
        if row % 3 == 0 or row == plain:
            parent = plain + (row - plain) // 2 - 1
        joined = parent >= plain and parent == row - 1
        tree["shared"].append(prompt)
        tree["branch"].append(tree["branch"][parent] if joined else slot)
        tree["positions"].append(tree["positions"][parent] + 1 if parent >= plain else prompt)
        runs = tree["runs"][parent] if parent >= plain else ()
        if parent >= plain and not joined:
            runs = (*runs, (tree["branch"][parent], first + parent + 1))
        tree["runs"].append(runs)
    return Attention(rows, first, heads, kv_heads, dim, dim, seed=rows, tree=tree, **words)


def bench():
    for name, heads, counts, ways in (
        ("0.6B", 16, (100, 200, 500, 1000, 8000), ((16, 64, 1), (16, 128, 1), (16, 128, 2), (32, 128, 1))),
        ("4B and 8B", 32, (100, 500, 1000, 8000), ((16, 128, 1),)),
    ):
        for count in counts:
            for splits, tile, least in ways:
                a = Attention(1, count - 1, heads, 8, 128, 128)
                label = f"{name} {count} slots, {splits} splits of {least} x {tile}"
                one = case(label, a, splits, tile=tile, least=least, inputs=Inputs(a, 128), flags=EARLY, reference=False)
                one.bytes = count * 8 * 128 * 4
                yield one
    yield case("0.6B 16 rows after 1000", Attention(16, 1000, 16, 8, 128, 128), 1, reference=False)
    for name, heads in (("0.6B", 16), ("4B and 8B", 32)):
        a = long_runs(392, 200, plain=200, dim=128, heads=heads, kv_heads=8)
        yield case(f"{name} 192 branches behind 200", a, 1, kind="tree", flags=16, least=2, reference=False)
        for rows, prompt in ((2, 2485), (6, 2485), (16, 2485), (2, 8000)):
            a = long_runs(rows, prompt, plain=1, dim=128, heads=heads, kv_heads=8)
            for splits in (1, 2):
                label = f"{name} {rows - 1} branches behind {prompt}, {'a block' if splits == 1 else 'blocks'} for each"
                yield case(label, a, splits, kind="tree", flags=16, least=2, reference=False)
        for splits in (2, 3, 4):
            a = Attention(16, 1000, heads, 8, 128, 128)
            yield case(f"{name} 16 rows after 1000, {splits} splits", a, splits, reference=False)
