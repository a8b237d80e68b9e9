"""attention: softmax(cap(scale * q k^T) + mask) v per head, over a cache of slots (Vaswani et al. 2017, arXiv 1706.03762).

Query head j reads key head j // (heads / kv_heads) (Ainslie et al. 2023, arXiv 2305.13245). The row of slot s sees the slots
[0, shared) and [branch, s]: a prompt and its own branch. A window w hides keys w or more positions back; a slot of the
first range is at the position of its number, in the second range positions differ as slots do. cap(x) = c tanh(x / c).
The backend appends k and v of all tokens of the batch to the cache before any row is computed.
"""

OPERANDS = {
    "out": "a [rows, heads * value_dim]",
    "ins": ("q [rows, heads * key_dim]", "k [tokens, kv_heads * key_dim]", "v [tokens, kv_heads * value_dim]"),
    "weights": (),
    "args": (
        "layer: index of the cache",
        "heads",
        "kv_heads",
        "key_dim",
        "value_dim",
        "scale",
        "window: visible positions, the own one included; 0: all",
        "softcap: c; 0: none",
    ),
    "state": (
        "keys, values: the cache of the layer in place of k and v, [slots, ...]",
        "slots, positions, shared, branch: one per row",
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
        "branch": b,
    }
    for rows, first, h, g, kd, vd, w, c, b in (
        (1, 0, 1, 1, 1, 1, 0, 0.0, False),
        (1, 31, 4, 2, 32, 32, 0, 0.0, False),
        (7, 0, 9, 3, 64, 64, 0, 0.0, False),
        (33, 32, 4, 1, 24, 40, 0, 0.0, False),
        (31, 64, 4, 4, 33, 31, 16, 0.0, False),
        (40, 0, 2, 1, 256, 256, 17, 3.0, False),
        (5, 40, 4, 2, 16, 16, 0, 0.0, True),
        (9, 65, 4, 2, 16, 16, 12, 5.0, True),
    )
)
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
        "branch": False,
    }
    for r, f in ((1, 511), (512, 0))
)


def visible(count, slots, positions, shared, branch, window):
    """bool [rows, count]: which of the first `count` slots each row sees."""
    import numpy as np

    slot = np.arange(count)[None, :]
    own, position, shared, branch = (np.asarray(v)[:, None] for v in (slots, positions, shared, branch))
    before = slot < shared
    after = (slot >= branch) & (slot <= own)
    if window:
        before &= slot > position - window
        after &= own - slot < window
    return before | after


def reference(q, keys, values, *, heads, kv_heads, key_dim, value_dim, scale, window, softcap, slots, positions, shared, branch):
    import numpy as np

    rows, count = len(q), max(slots, default=0) + 1
    seen = visible(count, slots, positions, shared, branch, window)
    q = q.reshape(rows, heads, key_dim)
    keys = keys[:count].reshape(count, kv_heads, key_dim)
    values = values[:count].reshape(count, kv_heads, value_dim)
    out = np.empty((rows, heads, value_dim), np.float32)
    for head in range(heads):
        source = head // (heads // kv_heads)
        s = q[:, head] @ keys[:, source].T * np.float32(scale)
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
        s = np.where(seen, s, np.float32(-np.inf))
        s = np.exp(s - s.max(-1, keepdims=True))
        out[:, head] = s / s.sum(-1, keepdims=True) @ values[:, source]
    return out.reshape(rows, heads * value_dim)


def inputs(case, random):
    rows, first, count = case["rows"], case["first"], case["first"] + case["rows"]
    names = ("heads", "kv_heads", "key_dim", "value_dim", "window", "softcap")
    words = {name: case[name] for name in names} | {"scale": case["key_dim"] ** -0.5}
    q = random.standard_normal((rows, case["heads"] * case["key_dim"]), "float32")
    k = random.standard_normal((count, case["kv_heads"] * case["key_dim"]), "float32")
    v = random.standard_normal((count, case["kv_heads"] * case["value_dim"]), "float32")
    slots = list(range(first, count))
    # a branch: a prompt of first - 3 slots, 3 slots of a sibling, then this branch, which continues at the prompt's end
    prompt = first - 3 if case["branch"] else 0
    words |= {"slots": slots, "shared": [prompt] * rows, "branch": [first if case["branch"] else 0] * rows}
    words["positions"] = [prompt + r for r in range(rows)] if case["branch"] else slots
    return (q, k, v), words
