"""How the rows of a buffer are shown under the name of a tap, and the way back. Called by trace and patch."""

import numpy as np

from ..errors import InvalidInputError
from .pattern import mixed, pattern

ROUTE = np.dtype([("expert", np.int32), ("weight", np.float32)])


def shape(point, rows, columns):
    """Shape of a tap for a text: `rows` of it are kept, of `columns` tokens."""
    words = {"rows": rows, "columns": columns, "columns + 1": columns + 1}
    return tuple(words.get(size, size) for size in point.shape)


def kind_of_numbers(point):
    return ROUTE if point.kind == "router" else np.float32


def look(walk, point, rows, first=0, made=None):
    """The tap as an array: `rows` (indices) of the batch, whose first token has the position `first`. A view where there is one.
    `made`: patterns that were put in the place of a step's own, by step."""
    if point.kind == "attention":
        return made[point.step][:, rows] if made and point.step in made else own_pattern(walk, point, rows, first)
    values = walk.read(point.buffer, point.at)[rows]
    if point.kind == "heads":
        return values.reshape(len(values), point.step.args["heads"], point.step.args["value_dim"])
    if point.kind == "router":
        used = point.step.args["used"]
        shown = np.empty((len(values), used), ROUTE)
        shown["weight"], shown["expert"] = values[:, :used], values[:, used:]
        return shown
    return values


def own_pattern(walk, point, rows, first):
    args, step = point.step.args, point.step
    q = walk.read(step.ins[0], point.at)[rows]
    keys, _ = walk.cached(step, first + len(walk.read(point.buffer, point.at)))
    return pattern(q.reshape(len(q), args["heads"], args["key_dim"]), keys, step, walk.sinks(step), first + np.asarray(rows))


def put(walk, point, old, new, made):
    """Write a tap back, all rows of a batch; `old` is what it was."""
    if point.kind == "attention":
        made[point.step] = new
        heads = walk.read(point.buffer, point.at).reshape(new.shape[1], len(new), -1)
        _, values = walk.cached(point.step, new.shape[1])
        values = mixed(heads, old, new, values)
        walk.write(point.buffer, point.at, values.reshape(len(values), -1))
    elif point.kind == "router":
        experts = walk.program.widths[point.step.ins[0]]
        if new.size and not 0 <= new["expert"].min() <= new["expert"].max() < experts:
            found = f"{new['expert'].min()} to {new['expert'].max()}"
            raise InvalidInputError("there is no such expert", f"0 to {experts - 1}", found, point.name)
        walk.write(point.buffer, point.at, np.concatenate([new["weight"], new["expert"].astype(np.float32)], 1))
    else:
        walk.write(point.buffer, point.at, new.reshape(len(new), -1))
