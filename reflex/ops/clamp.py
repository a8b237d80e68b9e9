"""clamp: x = min(max(x, -limit), limit); in place (attention.clamp_kqv)."""

OPERANDS = {"out": "x [rows, n]", "ins": ("x [rows, n]",), "weights": (), "args": ("limit: positive",), "state": ()}
TOLERANCE = 1e-6
CASES = tuple({"rows": rows, "n": n, "limit": 0.7} for rows, n in ((1, 1), (1, 31), (2, 33), (3, 256), (33, 576)))
BENCH = tuple({"rows": rows, "n": 4096, "limit": 8.0} for rows in (1, 512))


def reference(x, *, limit):
    import numpy as np

    return np.clip(x, -np.float32(limit), np.float32(limit))


def inputs(case, random):
    return (random.standard_normal((case["rows"], case["n"]), "float32"),), {"limit": case["limit"]}
