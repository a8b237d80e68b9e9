"""sparsify: x = max(x - m - d s, 0), m and s mean and standard deviation of the row (of n - 1); in place.

What lies less than d deviations above the mean becomes 0: activation sparsity.
"""

OPERANDS = {
    "out": "x [rows, n]",
    "ins": ("x [rows, n]",),
    "weights": (),
    "args": ("deviations: d",),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple({"rows": rows, "n": n, "deviations": 1.6448534} for rows, n in ((1, 2), (1, 31), (2, 33), (7, 256), (33, 1025)))
BENCH = tuple({"rows": rows, "n": 16384, "deviations": 1.6448534} for rows in (1, 512))


def reference(x, *, deviations):
    import numpy as np

    mean = x.mean(-1, keepdims=True)
    s = np.sqrt(np.square(x - mean).sum(-1, keepdims=True) / np.float32(x.shape[1] - 1))
    return np.maximum(x - mean - np.float32(deviations) * s, 0)


def inputs(case, random):
    return (0.5 + random.standard_normal((case["rows"], case["n"]), "float32"),), {"deviations": case["deviations"]}
