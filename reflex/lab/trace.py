"""Reading taps while a text is computed: `Model.trace`. Owns the record of what was read.

Only what is asked for is copied, and nothing behind the last tap is computed. A text longer than a batch is computed in several.
"""

import numpy as np

from ..errors import InvalidInputError
from ..records import Markup, Record, bar, table
from .patch import apply
from .progress import progress
from .shapes import kind_of_numbers, look, shape


class Trace(Record):
    """Values of taps over a text: `trace[name]` is an array, shaped as `Model.taps()` says; iterating yields the names, in the
    order of computing. Arrays are read-only copies."""

    model: str  # path of the file
    backend: str  # that computed
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]  # of each token
    rows: tuple[int, ...]  # the tokens whose rows were kept
    taps: dict  # name -> array
    __slots__ = (*__annotations__,)

    def __getitem__(self, name):
        if name not in self.taps:
            raise InvalidInputError("this tap was not traced", ", ".join(self.taps), repr(name), remedy="name it in taps")
        return self.taps[name]

    def __iter__(self):
        return iter(self.taps)

    def __len__(self):
        return len(self.taps)

    def __contains__(self, name):
        return name in self.taps

    def items(self):
        """Pairs of name and array."""
        return self.taps.items()

    def stack(self, word):
        """A tap of all layers that were traced, `word` being its name without the layer, as one array [layers, ...]."""
        found = [array for name, array in self.taps.items() if name.startswith("layers.") and name.split(".", 2)[2] == word]
        if not found:
            raise InvalidInputError("this tap was not traced", ", ".join(self.taps), f"layers.*.{word}", remedy="name it in taps")
        if len({array.shape for array in found}) > 1:
            shapes = ", ".join(sorted({str(array.shape) for array in found}))
            raise InvalidInputError("the layers differ in shape", "one shape", shapes, f"layers.*.{word}")
        return np.stack(found)

    def table(self):
        """One dictionary per tap: tap, shape, mean, std, largest (of the absolute values)."""
        return [summary(name, array) for name, array in self.taps.items()]

    def __eq__(self, other):
        if type(other) is not type(self) or list(self) != list(other):
            return False
        same = all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name != "taps")
        return same and all(np.array_equal(array, other[name]) for name, array in self.taps.items())

    __hash__ = Record.__hash__

    def __repr__(self):
        return f"<trace of {len(self.token_ids)} tokens by {self.backend}: {', '.join(self.taps) or 'no taps'}>"

    def _repr_html_(self):
        rows = self.table()
        most = max((row["std"] for row in rows), default=0) or 1
        cells = [
            (r["tap"], list(r["shape"]), f"{r['mean']:.4g}", f"{r['std']:.4g}", Markup(bar(r["std"] / most)), f"{r['largest']:.4g}")
            for r in rows
        ]
        return table(("tap", "shape", "mean", "std", "", "largest"), cells)


def summary(name, array):
    """What a row of the table says of one array."""
    numbers = array["weight"] if array.dtype.names else array
    words = {"mean": numbers.mean, "std": numbers.std, "largest": lambda: np.abs(numbers).max()}
    return {"tap": name, "shape": array.shape} | {word: float(f()) if numbers.size else 0.0 for word, f in words.items()}


def kept_rows(rows, count):
    """Ascending indices of the rows that an index, a list or a slice means; None means all."""
    every = np.arange(count)
    try:
        found = every if rows is None else np.atleast_1d(every[rows])
    except (IndexError, TypeError):
        expected = f"an index, a list or a slice of {count} rows"
        raise InvalidInputError("there are no such rows", expected, repr(rows), "rows") from None
    return np.unique(found)


def record(walk, ids, points, rows=None, changes=()):
    """{name: array} of the points, over a text of token ids; `rows` (indices, ascending; None: all) are kept. `changes`
    (patch.Change) are made on the way, and then the whole text must fit a batch."""
    kept = np.arange(len(ids)) if rows is None else rows
    found = {p.name: np.zeros(shape(p, len(kept), len(ids)), kind_of_numbers(p)) for p in points}
    moments = sorted({p.at for p in (*points, *(c.point for c in changes)) if p.kind != "logits"})
    if "logits" in found:
        moments.append(len(walk.program.steps))
    starts = range(0, kept[-1] + 1 if len(kept) else 0, walk.batch)
    for number, (first, moment) in enumerate(progress([(f, m) for f in starts for m in moments], "parts")):
        if number % len(moments) == 0:
            walk.plain(ids[first : first + walk.batch], first)
            at, made = 0, {}
            places = np.flatnonzero((kept >= first) & (kept < first + walk.batch))
            local = kept[places] - first
        if moment == len(walk.program.steps):
            done = 0
            for part in walk.scores(at, local):
                found["logits"][places[done : done + len(part)]] = part
                done += len(part)
            continue
        walk.run(at, moment)
        at = moment
        apply(walk, [c for c in changes if c.point.at == moment], first, made)
        for point in points:
            if point.at == moment:
                keep(point, found[point.name], places, look(walk, point, local, first, made))
    for change in changes:
        if change.point.kind == "logits" and "logits" in found:
            found["logits"] = change.value_for(found["logits"])
    for array in found.values():
        array.setflags(write=False)
    return found


def keep(point, array, places, values):
    """Put the rows of one batch into the array of the whole text."""
    if point.kind != "attention":
        array[places] = values
        return
    columns = values.shape[2] - (point.shape[2] != "columns")
    array[:, places, :columns] = values[:, :, :columns]
    if values.shape[2] > columns:
        array[:, places, -1] = values[:, :, -1]
