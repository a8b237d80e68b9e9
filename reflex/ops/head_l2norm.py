"""head_l2norm: x / sqrt(sum(x^2) + eps) over each head of a row separately, without weights; in place."""

OPERANDS = {
    "out": "q [rows, heads * head_dim]",
    "ins": ("q [rows, heads * head_dim]",),
    "weights": (),
    "args": ("heads", "head_dim", "eps: added to the sum of squares"),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = ((1, 1, 1), (1, 3, 31), (2, 4, 32), (3, 5, 33), (33, 2, 128))
CASES = tuple({"rows": rows, "heads": heads, "head_dim": dim, "eps": 1e-6} for rows, heads, dim in SIZES)
BENCH = tuple({"rows": rows, "heads": 16, "head_dim": 128, "eps": 1e-6} for rows in (1, 512))


def reference(q, *, heads, head_dim, eps):
    import numpy as np

    x = q.reshape(-1, heads, head_dim)
    return (x / np.sqrt(np.sum(x * x, -1, keepdims=True) + np.float32(eps))).reshape(q.shape)


def inputs(case, random):
    heads, dim = case["heads"], case["head_dim"]
    q = random.standard_normal((case["rows"], heads * dim), "float32")
    return (q,), {name: case[name] for name in ("heads", "head_dim", "eps")}
