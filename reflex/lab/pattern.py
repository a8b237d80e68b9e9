"""Attention patterns in numpy, from the queries and the cache that a backend holds (ops/attention.py has the formula).

No backend keeps its scores: they are computed again here, only when asked for. A pattern of another's making is mixed with the
values here as well, for the rows of heads that differ; all others keep what the backend computed.
"""

import numpy as np

from ..ops.linear import product


def pattern(q, keys, step, sinks, positions):
    """float32 [heads, rows, slots], with sinks one more column: the share that goes to no token. Each row sums to 1.

    q [rows, heads, key_dim] at `positions`, keys [slots, kv_heads, key_dim] of the positions 0, 1, 2, ..."""
    args = step.args
    group = args["heads"] // keys.shape[1]
    slots = np.arange(len(keys))
    ago = np.asarray(positions)[:, None] - slots
    hidden = ago < 0
    if args.get("window"):
        hidden |= ago >= args["window"]
    if args.get("chunk"):
        hidden |= slots // args["chunk"] < np.asarray(positions)[:, None] // args["chunk"]
    more = 0 if sinks is None else 1
    found = np.empty((args["heads"], len(q), len(keys) + more), np.float32)
    for head in range(args["heads"]):
        scores = product(q[:, head], keys[:, head // group]) * np.float32(args["scale"])
        if args.get("softcap"):
            scores = np.float32(args["softcap"]) * np.tanh(scores / np.float32(args["softcap"]))
        scores[hidden] = -np.inf
        if more:
            scores = np.concatenate([scores, np.full((len(q), 1), sinks[head], np.float32)], 1)
        scores = np.exp(scores - scores.max(1, keepdims=True))
        found[head] = scores / scores.sum(1, keepdims=True)
    return found


def mixed(out, old, new, values):
    """`out` [rows, heads, value_dim] with the rows of heads whose pattern is another in `new` than in `old` made anew, of
    values [slots, kv_heads, value_dim]."""
    out = out.copy()
    group = out.shape[1] // values.shape[1]
    for head in range(len(new)):
        rows = np.flatnonzero((old[head] != new[head]).any(1))
        out[rows, head] = new[head][rows, : len(values)] @ values[:, head // group]
    return out
