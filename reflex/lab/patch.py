"""Replacing taps while a text is computed (activation patching; Vig et al. 2020, arXiv 2004.12265): `Model.patch` and
`Model.patched`. Owns what a replacement may be. A tap that is given its own value changes nothing, to the bit."""

import numpy as np

from ..errors import InvalidInputError, StateError, UnsupportedError
from .shapes import look, put


class Change:
    """What is done to one tap: an array, one number for all, a pair (index, value), or a function of the array."""

    def __init__(self, point, value):
        self.point = point
        self.value = value

    def value_for(self, current):
        """The new array, as large as `current`."""
        where, value = self.point.name, self.value
        if callable(value):
            mine = current.copy()
            new = value(mine)
            new = mine if new is None else new
        elif isinstance(value, tuple) and len(value) == 2:
            new = current.copy()
            try:
                new[value[0]] = value[1]
            except (IndexError, ValueError, TypeError) as error:
                expected = f"an index and a value for an array of {list(current.shape)}"
                raise InvalidInputError("this does not fit the tap", expected, str(error), where) from None
        else:
            new = value
        try:
            new = np.asarray(new, current.dtype)
        except (TypeError, ValueError) as error:
            raise InvalidInputError("this is no value of a tap", f"numbers ({current.dtype})", str(error), where) from None
        if new.shape == () and self.point.kind != "router":
            new = np.full(current.shape, new)
        if new.shape != current.shape:
            raise InvalidInputError("this does not fit the tap", str(list(current.shape)), str(list(new.shape)), where)
        return new


def changes(known, given, select):
    """The Changes that a dictionary {tap: value} means, in the order of computing."""
    if not isinstance(given, dict):
        raise InvalidInputError("patches must be a dictionary", "{tap: value}", type(given).__name__)
    found = [Change(point, value) for name, value in given.items() for point in select(known, name)]
    order = {"attention": 0}  # a pattern is mixed before the heads it makes are replaced
    return sorted(found, key=lambda change: (change.point.at, order.get(change.point.kind, 1)))


def apply(walk, given, first, made):
    """Make the changes of one moment, in all rows of the batch."""
    for change in given:
        point = change.point
        rows = np.arange(len(walk.read(point.buffer, point.at)))
        if len(rows):
            old = look(walk, point, rows, first, made)
            put(walk, point, old, change.value_for(old), made)


class Patched:
    """While it is entered, whatever a session computes goes through the changes: `with model.patched({...}): ...`."""

    def __init__(self, session, walk, given):
        for change in given:
            if change.point.kind in ("attention", "logits") or change.point.at > walk.program.layers[-1]:
                expected = "a tap of the residual stream, of what is added to it, of heads or of the router"
                raise UnsupportedError("this tap can only be replaced by Model.patch", expected, change.point.name)
        self.session = session
        self.walk = walk
        self.given = given
        self.stops = sorted({change.point.at for change in given})

    def __enter__(self):
        plan = self.session.plan
        if "evaluate" in vars(plan):
            raise StateError("the model is patched already", remedy="put all patches into one")
        self.session.forget()
        plan.evaluate = self._evaluate
        return self

    def __exit__(self, *_):
        vars(self.session.plan).pop("evaluate", None)
        self.session.forget()

    def _evaluate(self, ids, first_slot, positions, shared, branch, outputs, runs=(), steady=True, strands=()):
        at = 0
        self.walk.begin(ids, first_slot, positions, shared, branch, outputs, runs, strands)
        for stop in self.stops:
            self.walk.run(at, stop)
            at = stop
            apply(self.walk, [change for change in self.given if change.point.at == stop], first_slot, {})
        self.walk.run(at, self.walk.program.layers[-1])
        self.session.plan.finish()
