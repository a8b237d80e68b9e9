"""rmsnorm: y = x / sqrt(mean(x^2) + eps) * w over each row (Zhang and Sennrich 2019, arXiv 1910.07467)."""

OPERANDS = {
    "out": "y [rows, n]",
    "ins": ("x [rows, n]",),
    "weights": ("w [n]",),
    "args": ("eps: added to the mean square",),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple({"rows": rows, "n": n, "eps": 1e-5} for rows in (1, 3) for n in (1, 31, 32, 33, 255, 256, 576, 1025))
BENCH = ({"rows": 1, "n": 4096, "eps": 1e-5}, {"rows": 512, "n": 4096, "eps": 1e-5})


def reference(x, w, *, eps):
    import numpy as np

    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps)) * w


def inputs(case, random):
    x = random.standard_normal((case["rows"], case["n"]), "float32")
    w = 1 + 0.3 * random.standard_normal(case["n"], "float32")
    return (x, w), {"eps": case["eps"]}
