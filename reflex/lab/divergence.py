"""How far the predictions of one model are from those of another, token by token: KL divergence and its kin.

Owns the arithmetic, in float64 over the whole vocabulary, and the summary with its errors. docs/measures.md has the formulas.
Called by compare and sensitivity.
"""

from math import exp, log, sqrt

import numpy as np

from ..records import Record
from .perplexity import exponential, mean, times
from .tensors import dot
from .windows import batches, not_numbers

PERCENTILES = (90, 99)


class Divergence(Record):
    """How the predictions of model B differ from those of model A on a text. Errors are standard errors of independent tokens."""

    method: str  # of cutting the text into windows, see docs/measures.md
    window: int  # tokens
    stride: int
    begin: str | None  # the token that every window begins with
    tokens: int  # of the text
    windows: int  # computed
    scored: int  # tokens compared: every number here is over these
    kl: float  # mean of KL(A, B) in nats
    kl_error: float | None
    kl_median: float
    kl_90: float  # percentiles
    kl_99: float
    kl_max: float
    same_top: float  # share of tokens where both think the same token most likely
    same_top_error: float | None
    top_change: float  # mean change, A to B, of the probability of the token that A thinks most likely
    top_change_error: float | None
    top_change_rms: float  # root of its mean square
    next_change: float  # the same of the token that does come next in the text
    next_change_error: float | None
    next_change_rms: float
    perplexity_a: float
    perplexity_a_error: float | None
    perplexity_b: float
    perplexity_b_error: float | None
    ratio: float  # perplexity of B over that of A
    ratio_error: float | None  # of the paired difference: what both find hard alike is no error
    __slots__ = (*__annotations__,)


class Row:
    """A row of finite logits as a distribution, in float64."""

    __slots__ = ("shifted", "total", "weights")

    def __init__(self, logits):
        self.shifted = logits.astype(np.float64)
        self.shifted -= self.shifted.max()
        self.weights = np.exp(self.shifted)
        self.total = float(self.weights.sum())

    def logprob(self, token):
        """Natural logarithm of the probability of a token."""
        return float(self.shifted[token]) - log(self.total)

    def divergence(self, other):
        """KL(self, other); exactly 0 where both are the same."""
        product = dot(self.weights, self.shifted - other.shifted)
        return product / self.total - (log(self.total) - log(other.total))


def rows(session, ids, first):
    """Yield (logits, next token) of a window, one for each of ids[first:]; the array is the caller's to keep."""
    for wanted in batches(session, ids, first):
        for row, token in enumerate(wanted):
            logits = np.array(session.plan.logits(row), np.float32)
            if not np.isfinite(logits).all():
                raise not_numbers(session)
            yield logits, token


class Differences:
    """Rows compared so far: `add` them, then `summary()`."""

    def __init__(self):
        self.values = []  # one tuple per row, in the order of NAMES

    NAMES = ("kl", "same", "top", "next", "nats_a", "nats_b")

    def __len__(self):
        return len(self.values)

    def add(self, a, b, token):
        """A row: the logits of both models before `token`, float32 [vocabulary]."""
        p, q, best = Row(a), Row(b), int(a.argmax())
        changes = [exp(q.logprob(at)) - exp(p.logprob(at)) for at in (best, token)]
        same = float(best == int(b.argmax()))
        self.values.append((p.divergence(q), same, *changes, -p.logprob(token), -q.logprob(token)))

    def column(self, name):
        """float64 [rows] of one of NAMES."""
        return np.array(self.values).reshape(-1, len(self.NAMES))[:, self.NAMES.index(name)]

    def summary(self, windows, done):
        """The Divergence of the rows so far, `done` of the `windows`; None where there are none."""
        if not self.values:
            return None
        kl, same, top, following, nats_a, nats_b = (self.column(name) for name in self.NAMES)
        found = {"windows": done, "scored": len(self.values)}
        found["kl"], found["kl_error"] = mean(kl.tolist())
        percentiles = np.percentile(kl, (50, *PERCENTILES)).tolist()
        found |= dict(zip(("kl_median", *(f"kl_{p}" for p in PERCENTILES)), percentiles, strict=True))
        found["kl_max"] = float(kl.max())
        found["same_top"], found["same_top_error"] = mean(same.tolist())
        for name, change in (("top_change", top), ("next_change", following)):
            found[name], found[name + "_error"] = mean(change.tolist())
            found[name + "_rms"] = sqrt(dot(change, change) / len(change))
        for name, nats in (("perplexity_a", nats_a), ("perplexity_b", nats_b), ("ratio", nats_b - nats_a)):
            middle, error = mean(nats.tolist())
            found[name] = exponential(middle)
            found[name + "_error"] = times(found[name], error)
        return Divergence(**windows.facts(), **found)
