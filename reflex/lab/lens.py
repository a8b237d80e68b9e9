"""The logit lens: what a model would say after each of its layers (nostalgebraist 2020, "interpreting GPT: the logit lens").

The residual stream after a layer goes through the model's own head, by the same kernels: final norm, output matrix, scale and soft
cap. What it says after the last layer is therefore what the model says, to the bit. Called by `Model.lens`.
"""

import numpy as np

from ..errors import InvalidInputError
from ..records import Markup, Record, escape, table
from ..sample import whole
from .progress import progress
from .trace import record

SHOWN = 16  # tokens of a text that a notebook shows, the last ones


class Lens(Record):
    """What every layer would say. Logarithms are natural ones, of the softmax over the whole vocabulary."""

    model: str  # path of the file
    backend: str  # that computed
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]  # of each token
    rows: tuple[int, ...]  # the tokens after which it was asked
    layers: tuple[int, ...]  # that were asked, counted from 0
    top_ids: np.ndarray  # int32 [layers, rows, top], the most likely one first; the lower id first among equals
    top_texts: tuple  # of them: [layer][row][rank]
    top_logprobs: np.ndarray  # float64 [layers, rows, top]
    next_logprobs: np.ndarray  # float64 [layers, rows]: of the token that the text goes on with; NaN after the last one
    entropies: np.ndarray  # float64 [layers, rows], bits
    logits: np.ndarray | None  # float32 [layers, rows, vocabulary] where they were asked for, else None
    __slots__ = (*__annotations__,)

    def table(self):
        """One dictionary per layer and row: layer, row, token, top (its text), logprob, next_logprob, entropy."""
        return [
            {
                "layer": layer,
                "row": row,
                "token": self.texts[row],
                "top": self.top_texts[i][j][0],
                "logprob": float(self.top_logprobs[i, j, 0]),
                "next_logprob": float(self.next_logprobs[i, j]),
                "entropy": float(self.entropies[i, j]),
            }
            for i, layer in enumerate(self.layers)
            for j, row in enumerate(self.rows)
        ]

    def plot(self, axes=None):
        """The most likely token after each layer (rows) and token (columns), shaded by its probability; matplotlib's axes."""
        from .pictures import lens

        return lens(self, axes)

    def __eq__(self, other):
        if type(other) is not type(self):
            return False
        pairs = [(getattr(self, name), getattr(other, name)) for name in self.__slots__]
        return all(np.array_equal(a, b, a.dtype.kind == "f") if hasattr(a, "shape") else a == b for a, b in pairs)

    __hash__ = Record.__hash__

    def __repr__(self):
        return f"<lens of {len(self.layers)} layers over {len(self.rows)} of {len(self.token_ids)} tokens by {self.backend}>"

    def _repr_html_(self):
        """The last layer on top, a column per token, the most likely next token in each cell, the darker the more likely."""
        shown = range(max(0, len(self.rows) - SHOWN), len(self.rows))
        lines = [
            [self.layers[i], *(_cell(self.top_texts[i][j][0], float(np.exp(self.top_logprobs[i, j, 0]))) for j in shown)]
            for i in reversed(range(len(self.layers)))
        ]
        return table(["after layer", *(self.texts[self.rows[j]] for j in shown)], lines)


def _cell(text, share):
    words = f"background:rgba(78,121,167,{share:.2f});padding:0 0.3em;white-space:pre"
    return Markup(f'<span style="{words}" title="{share:.3f}">{escape(text)}</span>')


def chosen_layers(layers, count):
    """Numbers of layers, ascending; negative ones count from the last."""
    if layers is None:
        return list(range(count))
    found = set()
    for layer in layers if hasattr(layers, "__iter__") else (layers,):
        number = layer.__index__() if hasattr(layer, "__index__") else count
        if not -count <= number < count:
            raise InvalidInputError("there is no such layer", f"{-count} to {count - 1}", repr(layer), "layers")
        found.add(number % count)
    return sorted(found)


def lens(walk, ids, known, layers, rows, top, logits):
    """The arrays of a Lens by their names, for the rows (indices) of a text of token ids."""
    top = min(whole("the number of tokens", top, "1 or more", least=1), walk.program.vocabulary)
    points = [known[f"layers.{layer}.residual_out"] for layer in layers]
    states = record(walk, ids, points, rows)
    sizes = len(layers), len(rows)
    found = {"top_ids": np.empty((*sizes, top), np.int32), "top_logprobs": np.empty((*sizes, top))}
    found |= {"next_logprobs": np.full(sizes, np.nan), "entropies": np.empty(sizes)}
    found["logits"] = np.empty((*sizes, walk.program.vocabulary), np.float32) if logits else None
    stacked, place = np.concatenate([states[point.name] for point in points]), 0
    for part in progress(walk.lens(stacked), "parts"):
        for scores in part:
            i, j = divmod(place, len(rows))
            read(scores, found, i, j, ids, int(rows[j]))
            place += 1
    for array in found.values():
        if array is not None:
            array.setflags(write=False)
    return found


def read(scores, found, i, j, ids, row):
    """Fill in what one row of logits says."""
    if found["logits"] is not None:
        found["logits"][i, j] = scores
    least = np.partition(scores, -found["top_ids"].shape[2])[-found["top_ids"].shape[2]]
    best = np.flatnonzero(scores >= least)
    best = best[np.argsort(-scores[best], kind="stable")][: found["top_ids"].shape[2]]
    x = scores.astype(np.float64)
    x -= x.max()
    mass = np.exp(x)
    total = mass.sum()
    x -= np.log(total)
    found["top_ids"][i, j], found["top_logprobs"][i, j] = best, x[best]
    found["entropies"][i, j] = -(mass[mass > 0] / total * x[mass > 0]).sum() / np.log(2)
    if row + 1 < len(ids):
        found["next_logprobs"][i, j] = x[ids[row + 1]]
