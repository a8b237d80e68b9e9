"""embed: x[r] = scale * table[ids[r]]. The table is the (quantized) embedding tensor; only the asked rows are decoded."""

OPERANDS = {
    "out": "x [rows, n]",
    "ins": (),
    "weights": ("table [vocabulary, n]",),
    "args": ("scale: factor of every element",),
    "state": ("ids: one token id per row",),
}
TOLERANCE = 1e-6
CASES = tuple(
    {"rows": rows, "n": n, "scale": scale} for rows, n, scale in ((1, 32, 1.0), (2, 31, 2.5), (33, 64, 8.0), (5, 257, 1.0))
)
BENCH = ({"rows": 1, "n": 2048, "scale": 1.0}, {"rows": 512, "n": 2048, "scale": 1.0})


def reference(table, *, scale, ids):
    """`table` is float32 [vocabulary, n] or anything that gives such rows for a list of ids in brackets."""
    import numpy as np

    return np.asarray(table[ids], np.float32) * np.float32(scale)


def inputs(case, random):
    ids = random.integers(0, 50, case["rows"]).tolist()
    return (random.standard_normal((50, case["n"]), "float32"),), {"scale": case["scale"], "ids": ids}
