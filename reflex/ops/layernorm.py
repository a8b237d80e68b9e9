"""layernorm: y = (x - mean(x)) / sqrt(var(x) + eps) * w + b over each row (Ba et al. 2016, arXiv 1607.06450).

var is the mean of (x - mean)^2. Either of w and b may be absent: OLMo 1 has neither, Command R no b.
"""

OPERANDS = {
    "out": "y [rows, n]",
    "ins": ("x [rows, n]",),
    "weights": ("w [n] or None", "b [n] or None"),
    "args": ("eps: added to the variance",),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "n": n, "eps": 1e-5, "weights": weights}
    for weights in ("wb", "w", "")
    for rows, n in ((1, 1), (1, 31), (3, 32), (1, 33), (2, 256), (33, 576), (3, 1025))
)
BENCH = tuple({"rows": rows, "n": 4096, "eps": 1e-5, "weights": "wb"} for rows in (1, 512))


def reference(x, w, b, *, eps):
    import numpy as np

    x = x - np.mean(x, -1, keepdims=True)
    y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps))
    if w is not None:
        y = y * w
    return y if b is None else y + b


def inputs(case, random):
    n = case["n"]
    x = 1 + random.standard_normal((case["rows"], n), "float32")
    w = (1 + 0.3 * random.standard_normal(n, "float32")).astype("float32") if "w" in case["weights"] else None
    b = random.standard_normal(n, "float32") if "b" in case["weights"] else None
    return (x, w, b), {"eps": case["eps"]}
