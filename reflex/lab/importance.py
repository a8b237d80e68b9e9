"""How much each column of each matrix matters on a text: `importance(model, text)`, what llama.cpp's imatrix program computes.

The text is cut into windows side by side, a rest is dropped, and each begins with the begin token where the model's texts do. For
every product with a matrix of a layer the squares of what is multiplied are summed up, column by column over all tokens; in a stack
of experts, for each expert over the tokens that go to it. Sums are in float64. Owns which steps multiply with which matrix; the
file is that of imatrix.py. Refuses backends that cannot be stopped between steps.
"""

from math import prod

import numpy as np

from ..errors import UnsupportedError
from ..program.records import BATCH
from ..quant.recipes import is_kept
from ..sample import whole
from .imatrix import Importance
from .progress import progress
from .taps import WALKED
from .walk import WALKS
from .windows import METHODS, Windows, not_numbers

SIDE_BY_SIDE = METHODS[1]
LAYERS, OUTPUT = "blk.", "output.weight"  # names of what is looked at; the second where it is asked for


def squares(x):
    """float64 [columns + 1] of x [rows, columns]: sums of squares, and last the number of rows."""
    x = x.astype(np.float64)
    return np.append(np.einsum("ij,ij->j", x, x), len(x))


def _of_all(step, shape, x):
    return squares(x)[None]


def _of_gate(step, shape, y, x):
    return squares(x)[None]


def _of_experts(step, shape, x, routes):
    """`x` has one part for all experts of a row, or one for each."""
    columns, _, experts = shape
    chosen, parts = routes[:, step.args["used"] :].astype(np.int64), x.reshape(len(x), -1, columns)
    found = np.zeros((experts, columns + 1))
    for expert in np.unique(chosen):
        rows, places = np.nonzero(chosen == expert)
        found[expert] = squares(parts[rows, places % parts.shape[1]])
    return found


def _of_heads(step, shape, x):
    parts = x.reshape(len(x), step.args["heads"], -1)[:, :, : shape[0]]
    return np.stack([squares(parts[:, head]) for head in range(parts.shape[1])])


# By operation: function (step, shape of the matrix, its inputs) -> float64 [matrices, columns + 1].
SUMS = {"linear": _of_all, "gate_rows": _of_gate, "expert_linear": _of_experts, "head_linear": _of_heads}


class Product:
    """Steps of a program that multiply the same values: `names` of their matrices, all of one `shape` of columns and matrices."""

    def __init__(self, at, step, shape):
        self.at = at  # steps before
        self.step = step
        self.shape = shape
        self.names = []


def products(program, tensors, output):
    """The Products of a program, in its order. Left out are matrices whose columns are not those of the values, transposed ones and
    parts of one for several heads. The parts of a fused matrix count once."""
    found, valid, parts = [], {}, set()
    for at, step in enumerate(program.steps):
        name = step.weights[0] if step.op in SUMS else ""
        wanted = (name.startswith(LAYERS) and name.endswith(".weight")) or (output and name == OUTPUT)  # not those of adapters
        turned = step.op == "head_linear" and ("rows" in step.args or "transposed" in step.args)
        if wanted and not turned and name not in parts:
            shape = tensors[name].shape
            key = step.op, step.ins, shape[0], shape[2:]
            if key not in valid:
                valid[key] = Product(at, step, shape)
                found.append(valid[key])
            valid[key].names.append(name)
            if "rows" in step.args:
                parts.add(name)
        valid = {key: product for key, product in valid.items() if step.out not in key[1]}
    return found


class Collecting:
    """An importance matrix in the making: iterate over it, a step per window; `result()` is what is known at any time."""

    def __init__(self, session, text, window=0, chunks=0, output=False, datasets=()):
        if session.backend not in WALKED:
            expected, remedy = " or ".join(WALKED), "name a backend"
            raise UnsupportedError("this backend cannot be stopped between steps", expected, session.backend, remedy=remedy)
        self.session = session
        self.datasets = tuple(datasets)
        self.windows = Windows(session, text, SIDE_BY_SIDE, window)
        most = whole("the number of chunks", chunks, "a whole number, 0 (all) or more")
        if most:
            del self.windows.places[most:]
        plan = session.plan
        self.products = products(plan.program, plan.file.tensors, output)
        self._walk = WALKS[session.backend](plan)
        self._state = 0, {}  # windows done, {name: float64 [matrices, columns + 1]}; both change at once, whenever Ctrl-C comes

    def __len__(self):
        return len(self.windows)

    def __iter__(self):
        for ids, _ in list(self.windows)[self.done :]:
            new = self._window(ids)
            done, sums = self._state
            self._state = done + 1, {name: sums[name] + own if name in sums else own for name, own in new.items()}
            yield

    def _window(self, ids):
        """{name: sums} of one window."""
        walk, found = self._walk, {}
        self.session.forget()
        for first in range(0, len(ids), BATCH):
            walk.plain(ids[first : first + BATCH], first)
            at = 0
            for product in self.products:
                walk.run(at, product.at)
                at = product.at
                ins = [walk.read(buffer, at) for buffer in product.step.ins]
                own = SUMS[product.step.op](product.step, product.shape, *ins)
                if not np.isfinite(own).all():
                    raise not_numbers(self.session)
                for name in product.names:
                    found[name] = found[name] + own if name in found else own
        return found

    @property
    def done(self):
        """How many windows are in the result."""
        return self._state[0]

    def result(self):
        """The Importance of the windows so far; None before the first."""
        done, sums = self._state
        if not done:
            return None
        parts = {name: (own[:, :-1].astype(np.float32), own[:, -1].astype(np.float32)) for name, own in sums.items()}
        return Importance(self.session.model, parts, self.datasets, done, self.windows.window)

    def unseen(self):
        """Names of the matrices that `reflex quantize` would touch and that nothing is known of."""
        known = {name for product in self.products for name in product.names}
        tensors = self.session.plan.file.tensors.values()
        return [t.name for t in tensors if t.name.startswith(LAYERS) and not is_kept(t.name, t.shape) and t.name not in known]


def importance(model, text, window=0, chunks=0, output=False):
    """How much each column of the matrices of `model` matters on `text`; returns an Importance, which `save` writes to a file.

    Windows of `window` tokens (by default 512, or the context), side by side, at least two; `chunks`: only the first so many.
    `output`: the output matrix too. `found.entries` has float32 [matrices, columns] by tensor, as `with_types` and `sensitivity`
    take it. Raises InvalidInputError for a text too short and UnsupportedError on `cuda`, before any work. An interrupt loses
    nothing where Collecting is used instead."""
    collecting = Collecting(model.session().core, text, window, chunks, output)
    for _ in progress(collecting, "windows"):
        pass
    return collecting.result()


def experts_without_rows(found):
    """{name: how many experts of the stack no row went to}, of an Importance."""
    idle = {name: int(np.count_nonzero(counts == 0)) for name, (_, counts) in found.sums.items() if prod(counts.shape) > 1}
    return {name: count for name, count in idle.items() if count}
