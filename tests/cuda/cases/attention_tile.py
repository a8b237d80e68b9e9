import numpy
from cases.attention_row import long_runs
from pages import LAYER_AT, Attention
from run import Addresses, Case


def shared_bytes(dim):
    pitch = 2 * dim + 16
    return 2 * 64 * pitch if dim <= 128 else 2 * 32 * pitch + 64 * pitch


def case(label, a, flags=0, reference=True, few=0, **words):
    """One launch. flags 16: of the plain rows only, the others are left alone. few: rows that are not computed."""
    out = numpy.full((a.rows, a.heads * a.value_dim), numpy.nan, numpy.float32)
    wanted = a.wanted() if reference else None
    if reference and flags & 16:
        out[a.cells[4] :] = wanted[a.cells[4] :] = 0.5
    if reference and few >= (a.cells[4] if flags & 16 else a.rows):
        out[:] = wanted[:] = 0.5
    sinks, sunk = a.sink_words()
    args = [
        a.q, out, sinks, a.cells, a.positions, a.shared, a.branch, Addresses(a.pages(a.k, a.v, a.count)), a.q.shape[1], a.heads,
        a.kv_heads, LAYER_AT, a.window, few, flags | sunk, a.scale, a.softcap,
    ]  # fmt: skip
    return Case(
        label, f"attention_tile_{a.key_dim}", (-(-a.rows // 64), a.heads), args, {1: wanted} if reference else {},
        shared=shared_bytes(a.key_dim), tolerance=words.pop("tolerance", 1e-3), **words,
    )  # fmt: skip


def cases():
    for rows, first in ((1, 0), (17, 0), (64, 0), (65, 0), (40, 250), (33, 600)):
        yield case(f"{rows} rows after {first}", Attention(rows, first, 1, 1, 64, 64, seed=rows))
    for dim in (80, 96, 128, 256):
        yield case(f"dim {dim}", Attention(20, 70, 2, 1, dim, dim, seed=dim))
    for heads, kv_heads in ((2, 2), (3, 1), (7, 1), (8, 2)):
        yield case(f"{heads} heads of {kv_heads}", Attention(5, 12, heads, kv_heads, 64, 64, seed=heads))
    yield case("window and cap", Attention(50, 200, 1, 1, 64, 64, window=40, softcap=7.0))
    yield case("window of one", Attention(20, 60, 1, 1, 64, 64, window=1))
    yield case("chunks", Attention(66, 200, 1, 1, 64, 64, window=-48))
    yield case("chunks that no block crosses", Attention(20, 129, 1, 1, 80, 80, window=-64))
    yield case("branches in chunks", Attention(66, 130, 1, 1, 64, 64, branches=3, window=-30))
    yield case("large scores", Attention(20, 60, 1, 1, 64, 64, peak=40.0), tolerance=5e-3)
    yield case("branches", Attention(60, 130, 1, 1, 64, 64, branches=5))
    yield case("branches in a window", Attention(66, 130, 1, 1, 64, 64, branches=3, window=30))
    yield case("branches far from the prompt", far())
    for plain in (0, 1, 16, 17, 66):
        yield case(f"the {plain} plain rows of a tree", long_runs(70, 90, plain=plain, heads=1), flags=16)
    for dim in (64, 128, 256):
        yield case(f"sinks, dim {dim}", Attention(20, 70, 4, 2, dim, dim, seed=dim, sinks=True))
    yield case("sinks, window and cap", Attention(50, 200, 2, 1, 64, 64, window=40, softcap=7.0, sinks=True))
    yield case("sinks of the plain rows of a tree", long_runs(70, 90, plain=17, heads=2, sinks=True), flags=16)
    yield case("no rows but few", Attention(3, 20, 1, 1, 64, 64), few=3)
    yield case("rows that are more than few", Attention(3, 20, 1, 1, 64, 64), few=2)
    yield case("plain rows that are few", long_runs(20, 30, plain=5, heads=1), flags=16, few=5)
    yield from large()


def large():
    for dim in (64, 80, 96, 128, 256):
        yield case(f"many rows of dim {dim}", Attention(300, 700, 4, 2, dim, dim), emulate=False)
    yield case("many branches", Attention(320, 777, 4, 2, 128, 128, branches=8), emulate=False)
    yield case("many rows in a window", Attention(512, 0, 4, 1, 256, 256, window=100), emulate=False)


def far():
    """A branch that lies behind other branches: nobody sees the slots between."""
    a = Attention(20, 300, 1, 1, 64, 64)
    a.shared[:], a.branch[:] = 70, 300
    a.positions = (a.slots - 230).astype(numpy.int32)
    return a


def bench():
    for name, heads in (("0.6B", 16), ("4B and 8B", 32)):
        for rows, first in ((32, 0), (512, 0), (512, 1536), (2048, 0)):
            a = Attention(rows, first, heads, 8, 128, 128)
            one = case(f"{name} {rows} rows after {first}", a, reference=False)
            one.flops = 4 * 128 * heads * rows * (first + (rows + 1) / 2)
            yield one
