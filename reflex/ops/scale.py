"""scale: every element times one factor; in place. Families that scale their logits use it."""

OPERANDS = {
    "out": "logits [rows, n]",
    "ins": ("logits [rows, n]",),
    "weights": (),
    "args": ("factor",),
    "state": (),
}
TOLERANCE = 1e-6
CASES = tuple({"rows": rows, "n": n, "factor": f} for rows, n, f in ((1, 1, 2.0), (1, 31, 0.0625), (2, 33, 1 / 8)))
BENCH = ({"rows": 1, "n": 151936, "factor": 0.0625},)


def reference(logits, *, factor):
    import numpy as np

    return logits * np.float32(factor)


def inputs(case, random):
    return (random.standard_normal((case["rows"], case["n"]), "float32"),), {"factor": case["factor"]}
