"""Two files of one model side by side: `compare(a, b, text)`, where B is often A in other types.

How far every tensor of B is from that of A and, on a text, how far its predictions are. Refuses files of different models and
vocabularies. docs/measures.md has the formulas.
"""

from ..errors import InvalidInputError
from ..records import Record, table
from .divergence import Differences, Divergence, rows
from .progress import progress
from .tensors import TensorDifference, described, difference, pairs
from .windows import METHODS, Windows

SHOWN = 40  # most tensors of a comparison in a notebook


class Compared(Record):
    """What `compare` found. `to_pandas()` is a frame with a row per tensor."""

    command: str
    a: str  # path of the file, and what was changed in memory
    b: str
    backend_a: str | None  # None where no text was computed
    backend_b: str | None
    bytes_a: int  # of all tensors
    bytes_b: int
    tensors: tuple[TensorDifference, ...]  # in the order of file A
    text: Divergence | None  # None without a text
    complete: bool  # false where it was interrupted
    __slots__ = (*__annotations__,)

    def table(self):
        """One dictionary per tensor."""
        return [tensor.to_dict() for tensor in self.tensors]

    @property
    def changed(self):
        """The tensors that are not the same, the largest relative error first."""
        return sorted((t for t in self.tensors if t.error != 0), key=lambda t: -t.error)

    def plot(self, axes=None):
        """The relative errors of changed tensors, a line over the layers for each kind; matplotlib's axes."""
        from .charts import comparison

        return comparison(self, axes)

    def _repr_html_(self):
        titles = ("tensor", "shape", "A", "B", "relative error", "cosine", "largest")
        cells = [
            (t.name, list(t.shape), t.type_a, t.type_b, f"{t.error:.5f}", f"{t.cosine:.6f}", f"{t.largest:.4g}")
            for t in self.changed[:SHOWN]
        ]
        page = table(titles, cells)
        left = len(self.tensors) - len(cells)
        return (self.text._repr_html_() if self.text else "") + page + (f"<p>{left} tensors are not shown.</p>" if left else "")


class Comparing:
    """A comparison in the making: iterate over it, a step per tensor and per window; `result()` is what is known at any time.

    `a`, `b`: open Files. `sessions`: of both, where there is a `text`; `windows`: how it is cut, see Windows."""

    def __init__(self, a, b, sessions=None, text=None, **windows):
        self.files, self.sessions = (a, b), sessions
        self.pairs = pairs(a, b)
        self.windows = same_windows(sessions, text, **windows) if sessions else []
        self.tensors, self.differences, self.done = [], Differences(), 0

    def __len__(self):
        return len(self.pairs) + len(self.windows)

    def __iter__(self):
        for a, b in self.pairs:
            self.tensors.append(difference(a, b))
            yield
        for ids, first in self.windows:
            for (a, token), (b, _) in zip(*(rows(session, ids, first) for session in self.sessions), strict=True):
                self.differences.add(a, b, token)
            self.done += 1
            yield

    def result(self):
        """The Compared of what was compared so far."""
        backends = [session.backend for session in self.sessions] if self.sessions else [None, None]
        sizes = [sum(tensor.nbytes for tensor in file.tensors.values()) for file in self.files]
        complete = len(self.tensors) + self.done == len(self)
        text = self.differences.summary(self.windows, self.done)
        return Compared("compare", *map(described, self.files), *backends, *sizes, tuple(self.tensors), text, complete)


def same_windows(sessions, text, **windows):
    """The Windows of a text for both sides, refused where their vocabularies differ."""
    a, b = sessions
    if a.plan.vocabulary != b.plan.vocabulary:
        sizes = f"{a.plan.vocabulary} tokens", f"{b.plan.vocabulary} tokens"
        raise InvalidInputError("the two models have different vocabularies", *sizes, b.model)
    found = [Windows(session, text, **windows) for session in sessions]
    if found[0].places != found[1].places or list(found[0]) != list(found[1]):
        remedy = "convert both files with one tokenizer"
        raise InvalidInputError("the two models tokenize the text differently", where=b.model, remedy=remedy)
    return found[0]


def compare(a, b, text=None, method=METHODS[0], window=0, stride=0, tokens=0):
    """How far model `b` is from model `a`; returns a Compared.

    `a`, `b`: Models. Without a `text` only their tensors are compared. With one, both predict it in the windows that `method`,
    `window`, `stride` and `tokens` mean (see perplexity), and `text.kl` and its kin say how far the predictions are apart. Raises
    InvalidInputError where tensors, vocabularies or tokens are not the same."""
    sessions = [model.session().core for model in (a, b)] if text is not None else None
    comparing = Comparing(a.file, b.file, sessions, text, method=method, window=window, stride=stride, tokens=tokens)
    for _ in progress(comparing, "steps"):
        pass
    return comparing.result()
