"""Which tensor hurts: `sensitivity(model, text, type)` gives one tensor or group at a time another type and ranks them.

What is measured is the KL divergence of the changed model's predictions from the unmodified ones, which are computed once. Nothing
is written; each change is `Model.with_types`. Owns the groups and the ranking. docs/measures.md has the formulas.
"""

import re
from math import fsum

from ..errors import InvalidInputError, OutOfMemoryError
from ..quant.recipes import is_kept
from ..quant.types import TRIAL, by_id, by_name
from ..records import Markup, Record, bar, table
from .divergence import Differences, Row, rows
from .overlay import fits, is_matrix, matching
from .perplexity import exponential
from .progress import progress
from .tensors import described, ratio_of, sums
from .windows import METHODS, Windows

GROUPS = ("kind", "layer", "tensor")
USUAL_TOKENS = 512  # of the text: one window, so that a scan of a small model takes seconds
MOST_BYTES = 4 << 30  # of the unmodified model's logits


class Swapped(Record):
    """One tensor, or group of tensors, in another type, all others as they are."""

    name: str  # a tensor; a layer, like blk.3; or a kind: the tensors of this name in all layers
    tensors: int  # changed
    types_before: tuple[str, ...]
    types_after: tuple[str, ...]
    bytes_before: int
    bytes_after: int
    error: float  # root of the summed squares of all changes over that of the values
    kl: float  # mean KL divergence from the unmodified model, in nats per token
    kl_error: float | None
    kl_max: float
    same_top: float  # share of tokens where the most likely one stays the same
    same_top_error: float | None
    ratio: float  # perplexity over that of the unmodified model
    ratio_error: float | None
    __slots__ = (*__annotations__,)


class Sensitivity(Record):
    """What `sensitivity` found. `to_pandas()` is a frame with a row per group."""

    command: str
    model: str  # path of the file, and what was changed in memory before
    backend: str
    tried: str  # the type, or types, asked for
    by: str  # kind, layer or tensor
    method: str  # of cutting the text into windows, see docs/measures.md
    window: int  # tokens
    stride: int
    begin: str | None
    tokens: int  # of the text
    scored: int  # tokens compared for every row
    perplexity: float | None  # of the unmodified model; None where it was interrupted before
    rows: tuple[Swapped, ...]  # the one that hurts most first
    unfit: tuple[str, ...]  # tensors left out: no type asked for divides their rows
    unchanged: tuple[str, ...]  # tensors left out: they have that type
    complete: bool  # false where it was interrupted
    __slots__ = (*__annotations__,)

    def table(self):
        """One dictionary per row, the one that hurts most first."""
        return [row.to_dict() for row in self.rows]

    def plot(self, axes=None):
        """The KL divergences: bars by kind or layer, by tensor a map of layers and kinds; matplotlib's axes."""
        from .charts import sensitivity

        return sensitivity(self, axes)

    def _repr_html_(self):
        most = max((row.kl for row in self.rows), default=0) or 1
        cells = [
            (r.name, r.tensors, " ".join(r.types_after), f"{r.kl:.5f}", Markup(bar(max(0, r.kl / most))), f"{r.same_top:.2%}",
             f"{r.ratio:.4f}", f"{(r.bytes_after - r.bytes_before) / 1e6:+.1f}")
            for r in self.rows
        ]  # fmt: skip
        page = table((self.by, "tensors", "type", "KL", "", "same top token", "perplexity ratio", "MB"), cells)
        return page if self.complete else page + "<p>Interrupted: not all were tried.</p>"


class Scan:
    """A sensitivity scan in the making: iterate over it, a step per group; `result()` is what is known at any time."""

    def __init__(
        self, model, text, type, tensors=None, by=GROUPS[0], importance=None,
        method=METHODS[0], window=0, stride=0, tokens=USUAL_TOKENS,
    ):  # fmt: skip
        if by not in GROUPS:
            raise InvalidInputError("no such groups of tensors", ", ".join(GROUPS), repr(by))
        self.model, self.type, self.by, self.importance = model, type, by, importance
        self.session = model.session().core
        self.windows = Windows(self.session, text, method, window, stride, tokens)
        needed = 4 * self.windows.scored * self.session.plan.vocabulary
        if needed > MOST_BYTES:
            expected, remedy = f"at most {MOST_BYTES >> 20} MiB", "use fewer tokens of the text"
            raise OutOfMemoryError("the unmodified model's logits are too many", expected, f"{needed >> 20} MiB", remedy=remedy)
        self.unfit, self.unchanged = [], []
        self.groups = self._groups(tensors)
        self.baseline, self.found = [], []  # float32 [vocabulary] per scored token; Swapped
        self.perplexity = None

    def _groups(self, tensors):
        """{name of a group: {tensor name: type name}}."""
        file, found = self.model.file, {}
        blocks = [by_name(kind.strip()) for kind in self.type.split(",")]
        patterns = [tensors] if isinstance(tensors, str) else tensors
        if tensors is None:
            wanted = [tensor for tensor in file.tensors.values() if not is_kept(tensor.name, tensor.shape)]
        else:
            wanted = [tensor for pattern in patterns for tensor in matching(file, pattern)]
        for tensor in filter(is_matrix, dict.fromkeys(wanted)):
            block = next((block for block in blocks if fits(tensor, block)), None)
            if block is None:
                self.unfit.append(tensor.name)
            elif block.id == tensor.type:
                self.unchanged.append(tensor.name)
            else:
                found.setdefault(group_of(tensor.name, self.by), {})[tensor.name] = block.name
        if not found:
            left_out = f"{len(self.unfit)} tensors whose rows do not fit, {len(self.unchanged)} that have it"
            remedy = "give several types with commas, of which the first that fits is taken"
            raise InvalidInputError("no tensor can get this type", self.type, left_out, file.path, remedy)
        return found

    def __len__(self):
        return len(self.groups)

    def __iter__(self):
        if not self.baseline:
            found = [row for ids, first in self.windows for row in rows(self.session, ids, first)]
            nats = fsum(-Row(logits).logprob(token) for logits, token in found)
            self.perplexity = exponential(nats / len(found))
            self.baseline = [logits for logits, _ in found]
        for name in list(self.groups)[len(self.found) :]:
            self.found.append(self._swap(name, self.groups[name]))
            yield self.found[-1]

    def _swap(self, name, types):
        with self.model.with_types(types, self.importance) as changed:
            session, differences = changed.session().core, Differences()
            unmodified = iter(self.baseline)
            for ids, first in self.windows:
                for logits, token in rows(session, ids, first):
                    differences.add(next(unmodified), logits, token)
            before = [self.model.file.tensors[tensor] for tensor in types]
            after = [changed.file.tensors[tensor] for tensor in types]
            found = [sums(a, b) for a, b in zip(before, after, strict=True)]
            error = ratio_of(sum(f.change for f in found), sum(f.square_a for f in found))
        text = differences.summary(self.windows, len(self.windows))
        sides = [(tuple(sorted({by_id(t.type).name for t in side})), sum(t.nbytes for t in side)) for side in (before, after)]
        (types_before, bytes_before), (types_after, bytes_after) = sides
        return Swapped(
            name, len(types), types_before, types_after, bytes_before, bytes_after, error, text.kl, text.kl_error, text.kl_max,
            text.same_top, text.same_top_error, text.ratio, text.ratio_error,
        )  # fmt: skip

    def result(self):
        """The Sensitivity of the groups so far."""
        facts = {"model": described(self.model.file), "backend": self.session.backend, "tried": self.type, "by": self.by}
        facts |= self.windows.facts() | {"scored": self.windows.scored}
        ranked = sorted(self.found, key=lambda row: (-row.kl, row.name))
        left_out = {"unfit": tuple(self.unfit), "unchanged": tuple(self.unchanged)}
        complete = len(self.found) == len(self.groups)
        return Sensitivity(
            command="sensitivity", **facts, perplexity=self.perplexity, rows=tuple(ranked), **left_out, complete=complete
        )


def group_of(name, by):
    """The group of a tensor, by its name."""
    layer = re.match(r"(blk\.\d+)\.(.*)", name)
    if by == "tensor" or (by == "layer" and not layer):
        return name
    if by == "layer":
        return layer[1]
    return (layer[2] if layer else name).removesuffix(".weight")


def sensitivity(
    model, text, type=TRIAL, tensors=None, by=GROUPS[0], importance=None,
    method=METHODS[0], window=0, stride=0, tokens=USUAL_TOKENS,
):  # fmt: skip
    """Which tensors of `model` hurt most in another type; returns a Sensitivity, the worst first.

    `type`: a block format, or several with commas of which each tensor gets the first that divides its rows. `tensors`: names or
    regular expressions of those to try; by default all that `reflex quantize` would touch. `by`: what is changed at once: kind
    (ffn_down of all layers), layer, or tensor. `importance`: as for Model.with_types. `text`, `method`, `window`, `stride` and
    `tokens` are as for perplexity, but with 512 tokens by default. Raises InvalidInputError where no tensor can get the type.
    An interrupt loses nothing where Scan is used instead."""
    scan = Scan(model, text, type, tensors, by, importance, method, window, stride, tokens)
    for _ in progress(scan, "groups"):
        pass
    return scan.result()
