"""The kernels that choose tokens, one after another as a decode graph runs them, against the loop of reflex.generate."""

import numpy
import pytest
from cases.logits import stats_of
from cases.sample import FILTERS, Order
from emulator import launch

from reflex.kernels.cuda.compile import load_all
from reflex.sample import Sampling, choose, penalize, uniform

COLUMNS, STEPS, SEED, END, LAST = 300, 3, 77, 13, 3  # LAST: how many tokens the penalty looks back


def test_the_reference_of_the_cases_is_the_definition():
    random = numpy.random.default_rng(2)
    for number in range(200):
        x = random.integers(-4, 5, 30).astype("float32") if number & 1 else random.standard_normal(30, "float32")
        settings = (0.7, *FILTERS[number % len(FILTERS)], random.random())
        assert Order(x).draw(*settings) == choose(x.tolist(), *settings)


INFINITE = numpy.float32(-numpy.inf)
EDGE_ROWS = {
    "all equal": numpy.full(40, 0.25, "float32"),
    "impossible": numpy.array([INFINITE, 3.0, INFINITE, 2.0, 3.0, *[INFINITE] * 30], "float32"),
    "far apart": numpy.array([80.0, -80.0, 79.5, 0.0, 80.0], "float32"),
}
EDGE_SETTINGS = [
    (0.0, 0, 1.0, 0.0),
    (1e-30, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, Sampling(top_k=10**30).top_k, 1.0, 0.0),
    (1.0, 0, 5e-324, 0.0),
    (1.0, 0, 1 - 2**-53, 5e-324),
    (1.0, 0, 1.0, 1 - 2**-53),
]


@pytest.mark.parametrize("settings", EDGE_SETTINGS)
@pytest.mark.parametrize("name", EDGE_ROWS)
def test_edges_follow_the_definition(name, settings):
    x = EDGE_ROWS[name]
    for random in (0.37, 1 - 2**-53):
        parameters, chosen = numpy.array([*settings, random, 1.0], "float64"), numpy.full(1, -7, "int32")
        scratch, counters = numpy.zeros(4096, "int64"), numpy.zeros(2, "uint32")
        run("sample_bins", 1, x, stats_of(x[None])[0], parameters, scratch, x.size)
        run("sample", 1, x, stats_of(x[None])[0], parameters, scratch, counters, chosen, x.size, 2048)
        assert chosen[0] == choose(x.tolist(), *settings, random), random


def run(name, grid, *args):
    kernel = load_all()[name]
    launch(kernel.function, grid, kernel.threads, list(args))


def statistics(logits):
    stats = numpy.full(4, numpy.nan, "float32")
    run("logits_stats", (1, 1), logits, stats, numpy.zeros(4, "float32"), numpy.zeros(1, "uint32"), COLUMNS)
    return stats


def by_host(rows, prompt, settings, penalty):
    """(ids, log-probabilities) of the loop in reflex.generate."""
    ids, logprobs = list(prompt), []
    for number, row in enumerate(rows):
        logits = row.tolist()
        penalize(logits, set(ids[-LAST:]), penalty)
        ids.append(choose(logits, *settings, uniform(SEED, number)))
        logprobs.append(row[ids[-1]] - row.max() - stats_of(row[None])[0, 3])
        if ids[-1] == END:
            break
    return ids[len(prompt) :], logprobs


@pytest.mark.parametrize(("settings", "penalty"), [((0.9, 20, 0.95, 0.02), 1.3), ((1.0, 0, 1.0, 0.0), 1.5), ((0.0, 0, 1, 0), 2.0)])
def test_tokens_of_a_decode_loop(settings, penalty):
    random = numpy.random.default_rng(5)
    rows = 2 * random.standard_normal((STEPS, COLUMNS), "float32")
    rows[-1, END] = 60.0
    wanted, logprobs = by_host(rows, [1, 2], settings, penalty)
    parameters = numpy.array([*settings, uniform(SEED, 0), penalty], "float64")
    state = numpy.array([SEED, 0, 0, 50, LAST - 1], "int64")
    recent, saved = numpy.array([1, 2, -1], "int32"), numpy.zeros(LAST, "float32")
    cells, ids, positions = numpy.array([1, 9, 1, 0], "int32"), numpy.array([2], "int32"), numpy.array([9], "int32")
    strands = numpy.zeros(5, "int32")
    history, ends = numpy.zeros(4 + 2 * 8, "uint32"), numpy.array([END], "int32")
    chosen, scratch, counters = numpy.zeros(1, "int32"), numpy.zeros(4096, "int64"), numpy.zeros(2, "uint32")
    for row in rows:
        logits = row.copy()
        stats = statistics(logits)
        run("penalize", 1, logits, recent, saved, parameters, LAST)
        changed = statistics(logits)
        run("sample_bins", 1, logits, changed, parameters, scratch, COLUMNS)
        run("sample", 1, logits, changed, parameters, scratch, counters, chosen, COLUMNS, 2048)
        before = chosen, logits, stats, ids, positions, cells, ends, 1, state, parameters, history, 8, recent, LAST, saved
        run("advance", 1, *before, strands, strands, 0)
        assert numpy.array_equal(logits, row)
    count = int(history[0])
    entries = history[4 : 4 + 2 * count].reshape(count, 2)
    assert entries[:, 0].tolist() == wanted
    assert wanted[-1] == END
    assert history[1] == cells[3] == 1
    assert numpy.allclose(entries[:, 1].copy().view("float32"), logprobs, atol=1e-5)
    assert (positions[0], cells[1]) == (9 + count - 1, 9 + count - 1)
