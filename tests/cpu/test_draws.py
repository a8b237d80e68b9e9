"""Drawing a token from known logits, through the samplers that the backends use: edge cases against the definition, and whether
10,000 seeded draws follow the distribution that the settings describe."""

import math

import numpy as np
import pytest
import tiny

import reflex
from reflex.errors import InternalError
from reflex.generate import generate
from reflex.sample import Sampling, choose, uniform

DRAWS = 10_000
OFF = (0, 1.0, 0.0)  # top_k, top_p, min_p


@pytest.fixture(scope="module", params=["cpu", "reference"])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny.write("llama-smollm", path)
    with reflex.load(path, backend=request.param, context=64, threads=1) as opened:
        yield opened


@pytest.fixture
def plan(model):
    """A plan with one row of logits that the test writes."""
    session = model.session().core
    session.sync([1])
    return session.plan


def row(values, length=tiny.VOCABULARY):
    """A whole row: the values, then -inf, which nothing may ever draw."""
    return np.array([*values, *[-math.inf] * (length - len(values))], np.float32)


def put(plan, logits):
    plan.logits(0)[:] = memoryview(np.ascontiguousarray(logits, np.float32))


RANDOMS = [0.0, 1e-300, *(step / 17 for step in range(1, 17)), 1 - 2**-53]
ROWS = {
    "a few": row([1.0, 3.0, 2.0, 3.0, -5.0]),
    "all equal": row([0.25] * tiny.VOCABULARY),
    "one": row([-7.0]),
    "ties": row([2, 1, 2, 0, 1, 2, 0, 0]),
    "far apart": row([80.0, -80.0, 79.5, 0.0, 80.0]),
    "huge": row([3e38, -3e38, 3e38, 0.0]),
    "tiny differences": row([1.0, math.nextafter(1.0, 2), 1.0]),
    "first is no candidate": row([-math.inf, -math.inf, 1.0, 2.0]),
}
SETTINGS = {
    "plain": (1.0, *OFF),
    "warm": (5.0, *OFF),
    "coldest": (Sampling(temperature=1e-300).temperature, *OFF),
    "coldest of two": (1e-30, 2, 1.0, 0.0),
    "top-k of one": (1.0, 1, 1.0, 0.0),
    "top-k of all": (1.0, tiny.VOCABULARY, 1.0, 0.0),
    "top-k beyond the vocabulary": (1.0, Sampling(top_k=10**30).top_k, 1.0, 0.0),
    "least top-p": (1.0, 0, 5e-324, 0.0),
    "top-p just below off": (1.0, 0, 1 - 2**-53, 0.0),
    "most min-p": (1.0, 0, 1.0, 1 - 2**-53),
    "least min-p": (1.0, 0, 1.0, 5e-324),
    "everything": (0.7, 3, 0.9, 0.1),
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", ROWS)
def test_edges_follow_the_definition(plan, name, settings):
    logits, settings = ROWS[name], SETTINGS[settings]
    put(plan, logits)
    values = [float(value) for value in logits]
    found = [plan.sample(0, *settings, random) for random in RANDOMS]
    wanted = [choose(values, *settings, random) for random in RANDOMS]
    assert all(math.isfinite(logits[token]) for token in found), "an impossible token was drawn"
    # A number that falls on the border of two tokens may be rounded to either; with these rows and numbers none does.
    assert found == wanted


@pytest.mark.parametrize("name", ROWS)
def test_temperature_zero_is_the_largest_logit_and_the_lowest_id_among_equals(plan, name):
    put(plan, ROWS[name])
    assert plan.argmax(0) == int(ROWS[name].argmax()) == choose(ROWS[name].tolist(), 0, 5, 0.1, 0.9, 0.99)


def probabilities(logits, temperature, top_k, top_p, min_p):
    """What a draw should follow, worked out on probabilities instead of sums: float64 [vocabulary]."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    plain = np.exp(logits[order].astype(np.float64) - logits.max())
    alive = np.ones(len(logits), bool)
    if top_k:
        alive[top_k:] = False
    if top_p < 1:
        share = np.where(alive, plain, 0) / plain[alive].sum()
        alive &= np.concatenate([[True], np.cumsum(share)[:-1] < top_p])
    alive &= plain >= min_p * plain[0]
    warm = np.where(alive, plain ** (1 / temperature), 0)
    out = np.zeros(len(logits))
    out[order] = warm / warm.sum()
    return out


def chi_square(counts, shares):
    """(statistic, its limit): draws from `shares` are above the limit once in 100,000 times. Rare tokens share one cell."""
    expected = shares * counts.sum()
    rare = expected < 10
    cells = [(expected[i], counts[i]) for i in np.flatnonzero(~rare)]
    if expected[rare].sum() > 0:
        cells.append((expected[rare].sum(), counts[rare].sum()))
    freedom = len(cells) - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 4.265 * math.sqrt(2 / (9 * freedom))) ** 3  # Wilson and Hilferty
    return sum((found - wanted) ** 2 / wanted for wanted, found in cells), limit


STATISTICS = {
    "plain": (1.0, *OFF),
    "cool": (0.6, *OFF),
    "warm": (1.8, *OFF),
    "top-k": (1.0, 9, 1.0, 0.0),
    "top-p": (1.2, 0, 0.8, 0.0),
    "min-p": (1.5, 0, 1.0, 0.1),
    "everything": (0.9, 25, 0.95, 0.02),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_ten_thousand_seeded_draws_follow_the_distribution(plan, name):
    settings = STATISTICS[name]
    logits = row(np.random.default_rng(4).normal(0, 1.5, 40).round(2))
    put(plan, logits)
    shares = probabilities(logits, *settings)
    counts = np.zeros(len(logits))
    for count in range(DRAWS):
        counts[plan.sample(0, *settings, uniform(2026, count))] += 1
    assert counts[shares == 0].sum() == 0, "a token that the filters exclude"
    statistic, limit = chi_square(counts, shares)
    assert statistic < limit
    wrong, limit = chi_square(counts, probabilities(logits, settings[0] * 1.3, *settings[1:]))
    assert wrong > limit, "the test would not see a temperature that is off by a third"


@pytest.mark.parametrize(("temperature", "value"), [(0, math.nan), (1.0, math.nan), (1.0, -math.inf)])
def test_logits_that_are_no_numbers_are_an_error(model, temperature, value, monkeypatch):
    session = model.session().core
    clean = session.plan.evaluate

    def evaluate(*args):
        clean(*args)
        put(session.plan, np.full(tiny.VOCABULARY, value))

    monkeypatch.setattr(session.plan, "evaluate", evaluate, raising=False)
    with np.errstate(invalid="ignore"), pytest.raises(InternalError, match="not numbers"):
        generate(session, "hello", max_tokens=2, temperature=temperature, seed=1).result()
