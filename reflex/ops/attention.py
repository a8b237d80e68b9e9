"""attention: softmax(cap(scale * q k^T) + mask) v per head, over a cache of slots (Vaswani et al. 2017, arXiv 1706.03762).

Query head j reads key head j // (heads / kv_heads) (Ainslie et al. 2023, arXiv 2305.13245). The row of slot s sees its path:
the slots [0, shared), those of its `runs` (pairs of first slot and end) and [branch, s], at the positions 0, 1, 2, ... up to its
own: a prompt, and the branches of a tree that lead to the row. A window w hides what is w or more positions back, a
chunk c what is before the last multiple of c.
cap(x) = c tanh(x / c). `sinks`: one more score per head, neither scaled nor capped, whose value is zero (Xiao et al. 2023,
arXiv 2309.17453). The backend appends k and v of all tokens of the batch to the cache before any row is computed, and
computes a row from its path alone, in that order: to the bit, neither other rows nor the places of its slots matter.
"""

OPERANDS = {
    "out": "a [rows, heads * value_dim]",
    "ins": (
        "q [rows, heads * key_dim]",
        "k [tokens, kv_heads * key_dim], optional",
        "v [tokens, kv_heads * value_dim]; without k and v the cache of the layer is read as it is, optional",
    ),
    "weights": ("sinks [heads], optional",),
    "args": (
        "layer: index of the cache",
        "heads",
        "kv_heads",
        "key_dim",
        "value_dim",
        "scale",
        "window: visible positions, the own one included; 0: all",
        "softcap: c; 0: none",
        "chunk: visible are the positions from its last multiple on, optional",
    ),
    "state": (
        "keys, values: the cache of the layer in place of k and v, [slots, ...]",
        "slots, positions, shared, branch: one per row",
        "runs: per row a tuple of (first, end); empty: no row has any",
    ),
}
TOLERANCE = 2e-5
CASES = tuple(
    {
        "rows": rows,
        "first": first,
        "heads": h,
        "kv_heads": g,
        "key_dim": kd,
        "value_dim": vd,
        "window": w,
        "softcap": c,
        "branch": b,  # how the rows hang together, see `inputs`
        "sinks": False,
    }
    for rows, first, h, g, kd, vd, w, c, b in (
        (1, 0, 1, 1, 1, 1, 0, 0.0, ""),
        (1, 31, 4, 2, 32, 32, 0, 0.0, ""),
        (7, 0, 9, 3, 64, 64, 0, 0.0, ""),
        (33, 32, 4, 1, 24, 40, 0, 0.0, ""),
        (31, 64, 4, 4, 33, 31, 16, 0.0, ""),
        (40, 0, 2, 1, 256, 256, 17, 3.0, ""),
        (5, 40, 4, 2, 16, 16, 0, 0.0, "branch"),
        (9, 65, 4, 2, 16, 16, 12, 5.0, "branch"),
        (11, 70, 4, 2, 16, 16, 0, 0.0, "tree"),
        (8, 40, 2, 1, 33, 24, 9, 4.0, "tree"),
        (8, 40, 2, 1, 16, 16, 3, 0.0, "tree"),
    )
)
CASES += tuple(CASES[i] | {"chunk": chunk} for i, chunk in ((1, 16), (3, 24), (6, 7), (8, 3), (0, 5)))
CASES += tuple(CASES[i] | {"sinks": True} for i in (0, 1, 2, 3, 4, 7, 10))
BENCH = tuple(
    {
        "rows": r,
        "first": f,
        "heads": 16,
        "kv_heads": 8,
        "key_dim": 128,
        "value_dim": 128,
        "window": 0,
        "softcap": 0.0,
        "branch": "",
        "sinks": False,
    }
    for r, f in ((1, 511), (512, 0))
)


def paths(slots, positions, shared, branch, runs, window, chunk=0):
    """Per row the slots that it sees, in the order of their positions: an array of indices, or a slice where they lie together."""
    import numpy as np

    for row, (own, position, stop, start) in enumerate(zip(slots, positions, shared, branch, strict=True)):
        low = max(0, position - window + 1) if window else position // chunk * chunk if chunk else 0
        if own - start >= position - low:
            yield slice(own - (position - low), own + 1)
            continue
        ranges = ((0, stop), *(runs[row] if runs else ()), (start, own + 1))
        yield np.concatenate([np.arange(*ends) for ends in ranges])[low:]


def reference(
    q,
    keys,
    values,
    sinks=None,
    *,
    heads,
    kv_heads,
    key_dim,
    value_dim,
    scale,
    window,
    softcap,
    slots,
    positions,
    shared,
    branch,
    runs=(),
    chunk=0,
):
    import numpy as np

    q = q.reshape(len(q), kv_heads, heads // kv_heads, key_dim)
    keys, values = keys.reshape(len(keys), kv_heads, key_dim), values.reshape(len(values), kv_heads, value_dim)
    out = np.empty((len(q), kv_heads, heads // kv_heads, value_dim), np.float32)
    for row, seen in enumerate(paths(slots, positions, shared, branch, runs, window, chunk)):
        s = q[row] @ keys[seen].transpose(1, 2, 0) * np.float32(scale)  # [kv_heads, group, seen]
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
        if sinks is not None:
            s = np.concatenate([s, sinks.reshape(kv_heads, -1, 1)], -1)
        s = np.exp(s - s.max(-1, keepdims=True))
        s = s / s.sum(-1, keepdims=True)
        out[row] = (s if sinks is None else s[..., :-1]) @ values[seen].transpose(1, 0, 2)
    return out.reshape(len(q), heads * value_dim)


def inputs(case, random):
    rows, first, count = case["rows"], case["first"], case["first"] + case["rows"]
    names = ("heads", "kv_heads", "key_dim", "value_dim", "window", "softcap")
    words = {name: case[name] for name in names} | {"scale": case["key_dim"] ** -0.5}
    words |= {"chunk": case["chunk"]} if "chunk" in case else {}
    q = random.standard_normal((rows, case["heads"] * case["key_dim"]), "float32")
    k = random.standard_normal((count, case["kv_heads"] * case["key_dim"]), "float32")
    v = random.standard_normal((count, case["kv_heads"] * case["value_dim"]), "float32")
    slots = list(range(first, count))
    words |= {"slots": slots, "positions": slots, "shared": [0] * rows, "branch": [0] * rows}
    if case["branch"]:  # a prompt of first - 3 slots, 3 slots of a sibling, then this branch, which continues at the prompt's end
        prompt = first - 3
        words |= {"shared": [prompt] * rows, "branch": [first] * rows, "positions": [prompt + r for r in range(rows)]}
    if case["branch"] == "tree":
        words |= forks(first - 3, first, rows)
    sinks = (random.standard_normal(case["heads"], "float32"),) if case["sinks"] else ()
    return (q, k, v, *sinks), words


def forks(prompt, first, rows):
    """Words of rows that hang together as a tree: rows 3, 6, 9 .. each continue behind the first row of the three before."""
    branch, positions, runs = [first] * 3, [prompt, prompt + 1, prompt + 2], [()] * 3
    for row in range(3, rows):
        at, parent = row % 3, row - row % 3 - 3
        branch.append(first + row - at)
        positions.append(positions[parent] + 1 + at)
        runs.append((*runs[parent], (branch[parent], first + parent + 1)))
    return {"branch": branch[:rows], "positions": positions[:rows], "runs": runs[:rows]}
