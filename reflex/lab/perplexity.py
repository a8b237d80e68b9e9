"""How well a model predicts a text: `perplexity(model, text)`.

Owns the result and its standard error; the windows are those of windows.py. docs/measures.md has the formulas.
"""

from math import exp, fsum, inf, sqrt

from ..records import Record
from .progress import progress
from .windows import METHODS, Windows, logprobs


class Perplexity(Record):
    """What `perplexity` found."""

    command: str
    model: str  # path of the file
    backend: str
    method: str  # sliding or llama.cpp, see docs/measures.md
    window: int  # tokens that are seen together at most, the begin token included
    stride: int  # tokens from one window to the next
    begin: str | None  # the token that every window begins with; None where the model's texts start with none
    tokens: int  # of the text
    windows: int  # computed
    scored: int  # tokens whose probability is in the result
    perplexity: float  # exp(nats)
    error: float | None  # standard error of the perplexity; None for one scored token
    nats: float  # mean of the negative log-probabilities
    nats_error: float | None  # its standard error
    complete: bool  # false where it was interrupted
    __slots__ = (*__annotations__,)


class Scoring:
    """A perplexity in the making: iterate over it, a step per window; `result()` is what is known at any time."""

    def __init__(self, session, text, method=METHODS[0], window=0, stride=0, tokens=0):
        self.session = session
        self.windows = Windows(session, text, method, window, stride, tokens)
        self.found = []  # negative log-probabilities, a list per window

    def __len__(self):
        return len(self.windows)

    def __iter__(self):
        for ids, first in self.windows:
            self.found.append([-value for value in logprobs(self.session, ids, first)])
            yield

    def result(self):
        """The Perplexity of the windows so far; None before the first."""
        if not self.found:
            return None
        values = [value for window in self.found for value in window]
        nats, error = mean(values)
        value = exponential(nats)
        found = {"perplexity": value, "error": times(value, error), "nats": nats, "nats_error": error}
        facts = {"command": "perplexity", "model": self.session.model, "backend": self.session.backend, **self.windows.facts()}
        counts = {"windows": len(self.found), "scored": len(values), "complete": len(self.found) == len(self)}
        return Perplexity(**facts, **found, **counts)


def perplexity(model, text, method=METHODS[0], window=0, stride=0, tokens=0):
    """How well `model` predicts `text`; returns a Perplexity.

    `method`: sliding (a window of `window` tokens, by default 512 or the context, moved by `stride`, by default half of it; every
    token but the first is scored once) or llama.cpp (as its perplexity program counts: windows side by side, the second half of
    each). `tokens`: only the first so many of the text. Raises InvalidInputError for a text too short and ContextOverflowError
    for a window too long, before any work. An interrupt loses nothing where Scoring is used instead."""
    scoring = Scoring(model.session().core, text, method, window, stride, tokens)
    for _ in progress(scoring, "windows"):
        pass
    return scoring.result()


def mean(values):
    """(mean, its standard error: the deviation of independent values over the root of their number; None for one value)."""
    count = len(values)
    middle = fsum(values) / count
    if count < 2:
        return middle, None
    return middle, sqrt(fsum((value - middle) ** 2 for value in values) / (count - 1) / count)


def exponential(nats):
    """exp, infinite where it is beyond all floats."""
    return exp(nats) if nats < 700 else inf


def times(factor, error):
    """A standard error times a factor; None stays None."""
    return None if error is None else factor * error
