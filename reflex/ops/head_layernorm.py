"""head_layernorm: layernorm over each head of a row separately, with a weight vector per head and no bias; in place."""

OPERANDS = {
    "out": "q [rows, heads * head_dim]",
    "ins": ("q [rows, heads * head_dim]",),
    "weights": ("w [heads, head_dim]",),
    "args": ("heads", "head_dim", "eps: added to the variance"),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "heads": heads, "head_dim": dim, "eps": 1e-5}
    for rows, heads, dim in ((1, 1, 2), (1, 3, 31), (2, 4, 32), (3, 5, 33), (1, 9, 64), (33, 2, 128), (2, 4, 256))
)
BENCH = ({"rows": 1, "heads": 32, "head_dim": 128, "eps": 1e-5}, {"rows": 512, "heads": 32, "head_dim": 128, "eps": 1e-5})


def reference(q, w, *, heads, head_dim, eps):
    import numpy as np

    x = q.reshape(-1, heads, head_dim)
    x = x - np.mean(x, -1, keepdims=True)
    y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps))
    return (y * w.reshape(heads, head_dim)).reshape(q.shape)


def inputs(case, random):
    heads, dim = case["heads"], case["head_dim"]
    x = 1 + random.standard_normal((case["rows"], heads * dim), "float32")
    w = (1 + 0.3 * random.standard_normal((heads, dim), "float32")).astype("float32")
    return (x, w), {"heads": heads, "head_dim": dim, "eps": case["eps"]}
