"""head_rmsnorm: rmsnorm over each head of a row separately, one weight vector for all heads, or none; in place.

A weight vector that is shorter than a head says how much of it is normed: its first dimensions; the others are copied.
"""

OPERANDS = {
    "out": "q [rows, heads * head_dim]",
    "ins": ("q [rows, heads * head_dim]",),
    "weights": ("w [up to head_dim] or None: ones",),
    "args": ("heads", "head_dim", "eps: added to the mean square"),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "heads": heads, "head_dim": dim, "eps": 1e-6, "w": w}
    for rows, heads, dim, w in (
        (1, 1, 1, 1),
        (1, 3, 31, 31),
        (2, 4, 32, 32),
        (3, 5, 33, 33),
        (1, 9, 64, 64),
        (33, 2, 128, 128),
        (2, 4, 256, 256),
        (3, 1, 96, 64),
        (2, 3, 40, 33),
        (1, 1, 576, 512),
        (2, 3, 40, 0),
        (1, 2, 512, 0),
    )
)
BENCH = tuple({"rows": rows, "heads": 32, "head_dim": 128, "eps": 1e-6, "w": 128} for rows in (1, 512))


def reference(q, w, *, heads, head_dim, eps):
    import numpy as np

    x = q.reshape(-1, heads, head_dim)
    some = x if w is None else x[..., : len(w)]
    y = some / np.sqrt(np.mean(some * some, -1, keepdims=True) + np.float32(eps))
    if w is not None:
        y = np.concatenate([y * w, x[..., len(w) :]], -1)
    return y.reshape(q.shape)


def inputs(case, random):
    heads, dim = case["heads"], case["head_dim"]
    x = random.standard_normal((case["rows"], heads * dim), "float32")
    w = 1 + 0.3 * random.standard_normal(case["w"], "float32") if case["w"] else None
    return (x, w), {"heads": heads, "head_dim": dim, "eps": case["eps"]}
