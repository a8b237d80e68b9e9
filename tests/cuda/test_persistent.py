"""The persistent decode kernel in the emulator: a tiny model on a few blocks against a float32 model."""

import emulator
import numpy
from dense import Dense
from run import Addresses

from reflex.backends.cuda import persistent as host
from reflex.kernels.cuda import persistent, persistent_attention, persistent_exchange, persistent_phases

Q4, Q6, Q8 = 12, 14, 8
NAMES = ("ENTRY", "PAIRED", "PASS", "LISTED", "NAMESAKE", "SEGMENT")


def run(model, first, position, token, tokens, kernel, stages=3, stops=(), seen=None, branch=None):
    """Launch in the emulator; returns (tokens, logits, cache) and the reference's logits for the tokens it chose."""
    s = model.sizes
    cache = model.cache(first + tokens)
    pages, cache_at = model.pages(cache)
    arrays = model.arrays()
    table, listed = model.table([a.ctypes.data for a in arrays], cache_at)
    cells = numpy.zeros(16, numpy.int32)
    cells[:3] = 1, first, 1
    ids, positions = numpy.array([token], numpy.int32), numpy.array([position], numpy.int32)
    shared = numpy.array([first if seen is None else seen], numpy.int32)
    branches = numpy.array([first if branch is None else branch], numpy.int32)
    exchange = numpy.zeros(s.exchange_words(), numpy.uint32)
    logits, out = numpy.full(s.vocabulary, numpy.nan, numpy.float32), numpy.full(tokens + 1, -1, numpy.int32)
    status = numpy.zeros(s.blocks, numpy.uint32)
    flags = (model.style == "neox") * host.HALVES | (model.act == "gelu") * host.GELU
    flags |= (model.biases[0][0] is not None) * host.BIASED
    scale = s.size**-0.5 * 1.4426950408889634
    arguments = [
        table, model.frequencies, Addresses(pages + arrays), cells, ids, positions, shared, branches,
        numpy.array([*stops, -1], numpy.int32), exchange, logits, out, status,
        s.layers, s.width, s.heads, s.kv_heads, s.size, s.hidden, s.vocabulary, model.pairs, flags, stages, s.stage, s.room,
        tokens, len(stops), model.eps, scale, 1.0, 1.0, 1.0, 1.0,
    ]  # fmt: skip
    emulator.launch(kernel, s.blocks, host.THREADS, arguments, s.shared_bytes(stages, listed), cooperative=True)
    assert not status.any()
    made = int(out[0])
    assert (exchange[-544 - 4 * s.blocks :][:512:32].reshape(4, 4).sum(1) == made * (s.layers + 1) * s.blocks).all()
    wanted = None
    for i in range(made):
        old = None if seen is None else [*range(seen), *range(branch, first + i)]
        wanted = model.step(token, first + i, position + i, cache, old)
        token = int(out[1 + i])
        assert wanted.max() - wanted[token] < 0.02 * wanted.std()
    return out, logits, wanted, model.cache_of(pages)[:, :, :, : first + made], cache[:, :, :, : first + made]


def check(logits, wanted, found, cache):
    assert numpy.abs(logits - wanted).max() < 0.01 * wanted.std()
    assert numpy.abs(found.astype(numpy.float32) - cache.astype(numpy.float32)).max() < 0.01


def mixed(layer):
    return (Q4, Q4, Q6, Q4, Q4, Q4, Q6) if layer == 0 else (Q4, Q6, Q8, Q8, Q4, Q6, Q4)


def test_two_tokens_of_mixed_formats():
    model = Dense(host.Sizes(2, 256, 4, 2, 64, 512, 300, 4), mixed, Q6)
    out, logits, wanted, found, cache = run(model, 105, 105, 5, 2, persistent.persistent((1, 1, 1)))
    assert out[0] == 2
    check(logits, wanted, found, cache)


def test_other_shapes_and_a_stop():
    """Rows that end within a unit, one head per block, other rotary pairs, biases, gelu, hidden slots, several passes."""
    sizes = host.Sizes(1, 288, 3, 1, 32, 160, 900, 3)
    model = Dense(sizes, lambda layer: (Q8,) * 7, Q8, style="norm", act="gelu", head_norms=False, biases=True, dims=16)
    kernel = persistent.persistent((2, 1, 2))
    out, logits, wanted, found, cache = run(model, 20, 17, 5, 2, kernel, seen=5, branch=12)
    assert out[0] == 2
    check(logits, wanted, found, cache)
    out, logits, wanted, found, cache = run(model, 20, 17, 5, 2, kernel, seen=5, branch=12, stops=(out[1],))
    assert out[0] == 1
    check(logits, wanted, found, cache)


def test_rows_of_several_slices():
    """Rows that end within a slice, stages of few rows."""
    sizes = host.Sizes(1, 1280, 2, 1, 128, 2304, 40, 10, stage=8192)
    model = Dense(sizes, lambda layer: (Q4, Q6, Q8, Q4, Q4, Q6, Q6), Q6)
    _, logits, wanted, found, cache = run(model, 3, 3, 5, 1, persistent.persistent((2, 1, 1)))
    check(logits, wanted, found, cache)


def test_slices_of_rows_that_begin_anywhere():
    """Few rows per block, so that rows are cut in two: of 612 bytes, copied one by one."""
    model = Dense(host.Sizes(1, 576, 1, 1, 64, 192, 60, 24), lambda layer: (Q8,) * 7, Q8, style="norm", head_norms=False)
    _, logits, wanted, found, cache = run(model, 20, 20, 5, 1, persistent.persistent((1, 1, 1)))
    check(logits, wanted, found, cache)


def test_numbers_repeated_by_the_run_time():
    assert [getattr(persistent_phases, n) for n in NAMES] == [getattr(host, n) for n in NAMES]
    assert host.SPLITS == persistent_exchange.SPLITS
    assert host.PAGES == persistent_attention.PAGES
    assert host.PARAMETERS == persistent.SIGNATURE
