"""The numbers of a comparison against their definitions, written out in plain Python and, where possible, exactly."""

import math
from array import array
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import session

from reflex.errors import InternalError, InvalidInputError
from reflex.gguf.header import Tensor
from reflex.lab.compare import Comparing, same_windows
from reflex.lab.divergence import Differences, Row, rows
from reflex.lab.tensors import difference, pairs, pieces
from reflex.lab.windows import Windows
from reflex.quant.types import by_name

TEXT = "aa bc the quick fox is in Paris, and the é dog"
RANDOM = np.random.default_rng(5)


def probabilities(logits):
    weights = [math.exp(float(x)) for x in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def facts():
    return Windows(session(), TEXT, window=8, stride=4)


def test_the_definitions():
    differences = Differences()
    kls, tops, top_changes, next_changes, nats_a, nats_b = ([] for _ in range(6))
    for _ in range(40):
        a = RANDOM.normal(0, 2, 50).astype(np.float32)
        b = (a + RANDOM.normal(0, 0.5, 50)).astype(np.float32)
        token = int(RANDOM.integers(50))
        differences.add(a, b, token)
        p, q = probabilities(a), probabilities(b)
        kls.append(math.fsum(x * math.log(x / y) for x, y in zip(p, q, strict=True)))
        top = p.index(max(p))
        tops.append(top == q.index(max(q)))
        top_changes.append(q[top] - p[top])
        next_changes.append(q[token] - p[token])
        nats_a.append(-math.log(p[token]))
        nats_b.append(-math.log(q[token]))
    found = differences.summary(facts(), 3)

    def error(values):
        return float(np.std(values, ddof=1) / math.sqrt(len(values)))

    def rms(values):
        return math.sqrt(sum(value * value for value in values) / len(values))

    want = {
        "kl": np.mean(kls), "kl_error": error(kls), "kl_median": np.median(kls), "kl_90": np.percentile(kls, 90),
        "kl_99": np.percentile(kls, 99), "kl_max": max(kls), "same_top": np.mean(tops),
        "same_top_error": math.sqrt(np.mean(tops) * (1 - np.mean(tops)) / 39),
        "top_change": np.mean(top_changes), "top_change_error": error(top_changes), "top_change_rms": rms(top_changes),
        "next_change": np.mean(next_changes), "next_change_error": error(next_changes), "next_change_rms": rms(next_changes),
        "perplexity_a": math.exp(np.mean(nats_a)), "perplexity_a_error": math.exp(np.mean(nats_a)) * error(nats_a),
        "perplexity_b": math.exp(np.mean(nats_b)), "perplexity_b_error": math.exp(np.mean(nats_b)) * error(nats_b),
        "ratio": math.exp(np.mean(nats_b) - np.mean(nats_a)),
    }  # fmt: skip
    want["ratio_error"] = want["ratio"] * error(np.subtract(nats_b, nats_a))
    for name, value in want.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert (found.scored, found.windows, found.window, found.method) == (40, 3, 8, "sliding")
    assert 0 < want["same_top"] < 1


def test_the_same_logits_are_exactly_the_same():
    differences = Differences()
    for _ in range(20):
        logits = RANDOM.normal(0, 9, 1000).astype(np.float32)
        differences.add(logits, logits.copy(), 7)
    found = differences.summary(facts(), 1)
    assert (found.kl, found.kl_error, found.kl_max, found.same_top, found.same_top_error) == (0, 0, 0, 1, 0)
    assert (found.top_change, found.top_change_rms, found.next_change, found.ratio, found.ratio_error) == (0, 0, 0, 1, 0)


def test_one_row_has_no_errors():
    differences = Differences()
    differences.add(np.zeros(4, np.float32), np.arange(4, dtype=np.float32), 1)
    found = differences.summary(facts(), 1)
    assert found.kl > 0 and found.kl_error is None and found.ratio_error is None
    assert Differences().summary(facts(), 0) is None


def test_logits_far_from_zero():
    row = Row(np.array([1e4, 1e4 - 1, -1e4], np.float32))
    share = math.log1p(math.exp(-1))
    assert [row.logprob(token) for token in range(3)] == pytest.approx([-share, -1 - share, -2e4 - share])
    assert row.divergence(Row(np.array([-1e4, -1e4 - 1, -3e4], np.float32))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers(value):
    s = session()
    s.plan.logits = lambda row: memoryview(array("f", [0.0] * (s.plan.vocabulary - 1) + [value]))
    with pytest.raises(InternalError, match="not numbers"):
        list(rows(s, [3, 4, 5], 1))


# ---- tensors -------------------------------------------------------------------------------------------------


def tensor(values, name="t", shape=None):
    """A Tensor of F32 over an array that the caller keeps."""
    shape = shape or values.shape[::-1]
    return Tensor(name, by_name("F32").id, shape, values.ctypes.data, values.nbytes, values.size)


def test_difference_of_tensors():
    a = RANDOM.normal(0, 1, (5, 7)).astype(np.float32)
    b = a + RANDOM.normal(0, 0.1, (5, 7)).astype(np.float32)
    found = difference(tensor(a), tensor(b))
    exact_a, exact_b = ([Fraction(float(x)) for x in side.ravel()] for side in (a, b))
    square = sum(x * x for x in exact_a)
    change = sum((y - x) ** 2 for x, y in zip(exact_a, exact_b, strict=True))
    product = sum(x * y for x, y in zip(exact_a, exact_b, strict=True))
    assert found.error == pytest.approx(math.sqrt(change / square), rel=1e-12)
    assert found.cosine == pytest.approx(float(product) / math.sqrt(square * sum(y * y for y in exact_b)), rel=1e-12)
    assert found.largest == max(abs(float(y - x)) for x, y in zip(exact_a, exact_b, strict=True))
    assert (found.type_a, found.bytes_a, found.shape) == ("F32", 140, (7, 5))


EDGES = {  # values of a, of b -> (error, cosine, largest)
    "the same": ([1, 2], [1, 2], (0, 1, 0)),
    "nothing instead": ([3, 4], [0, 0], (1, 0, 4)),
    "the opposite": ([3, 4], [-3, -4], (2, -1, 8)),
    "something for nothing": ([0, 0], [3, 4], (math.inf, 0, 4)),
    "zeros of another sign": ([0.0, 0.0], [-0.0, 0.0], (0, 1, 0)),
}


@pytest.mark.parametrize("case", EDGES)
def test_differences_at_the_edges(case):
    a, b, want = EDGES[case]
    a, b = np.array(a, np.float32), np.array(b, np.float32)
    found = difference(tensor(a), tensor(b))
    assert (found.error, found.cosine, found.largest) == pytest.approx(want)


def test_weights_that_are_no_numbers_are_not_hidden():
    a, b = np.array([1, math.nan, 2], np.float32), np.array([1, 1, 1], np.float32)
    found = difference(tensor(a), tensor(b))
    assert math.isnan(found.error) and math.isnan(found.largest)


def test_pieces_are_whole_rows(monkeypatch):
    from reflex.lab import tensors

    values = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for most, sizes in ((1, [5] * 12), (14, [10] * 6), (1000, [60])):
        monkeypatch.setattr(tensors, "PIECE", most)
        found = list(pieces(tensor(values)))
        assert [piece.size for piece in found] == sizes and np.array_equal(np.concatenate(found), values.ravel())


def file(**tensors):
    return SimpleNamespace(tensors=tensors, path="b.gguf", overlaid=())


def test_files_of_different_models_are_refused():
    values = np.zeros(6, np.float32)
    one, other = tensor(values, "one"), tensor(values, "other")
    wide = tensor(values, "one", (3, 2))
    assert pairs(file(one=one), file(one=one)) == [(one, one)]
    for a, b, words in (({"one": one}, {}, "tensor one of A in both"), ({}, {"one": one}, "tensor one of B in both")):
        with pytest.raises(InvalidInputError, match=words):
            pairs(file(other=other, **a), file(other=other, **b))
    with pytest.raises(InvalidInputError, match="not of one model"):
        pairs(file(one=one), file(one=wide))


def test_vocabularies_that_differ_are_refused():
    a, b = session(), session()
    b.plan.vocabulary += 1
    with pytest.raises(InvalidInputError, match="different vocabularies; expected 272 tokens; found 273 tokens"):
        same_windows((a, b), TEXT)
    c = session()
    c.tokenizer.encode = lambda text, **_: [3 + byte for byte in text]
    with pytest.raises(InvalidInputError, match="tokenize the text differently"):
        same_windows((a, c), TEXT)


def test_a_comparison_step_by_step():
    values = np.arange(4, dtype=np.float32)
    more = values + 1
    a, b = file(one=tensor(values, "one"), two=tensor(values, "two")), file(one=tensor(values, "one"), two=tensor(more, "two"))
    comparing = Comparing(a, b, (session(), session()), TEXT, window=8, stride=4)
    steps = iter(comparing)
    assert comparing.result().tensors == () and comparing.result().text is None
    for _ in range(3):
        next(steps)
    part = comparing.result()
    assert [t.name for t in part.tensors] == ["one", "two"] and part.text.windows == 1 and not part.complete
    for _ in steps:
        pass
    whole = comparing.result()
    assert whole.complete and whole.text.windows == len(comparing) - 2 and whole.text.kl == 0 and whole.text.same_top == 1
    assert [t.name for t in whole.changed] == ["two"] and whole.table()[1]["name"] == "two"
    assert "two" in whole._repr_html_() and "1 tensors are not shown" in whole._repr_html_()
