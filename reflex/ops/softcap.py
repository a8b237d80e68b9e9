"""softcap: cap * tanh(x / cap), which keeps every element inside (-cap, cap); in place."""

OPERANDS = {
    "out": "logits [rows, n]",
    "ins": ("logits [rows, n]",),
    "weights": (),
    "args": ("cap",),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple({"rows": rows, "n": n, "cap": cap} for rows, n, cap in ((1, 1, 30.0), (1, 31, 1.5), (2, 33, 30.0)))
BENCH = ({"rows": 1, "n": 262144, "cap": 30.0},)


def reference(logits, *, cap):
    import numpy as np

    return np.float32(cap) * np.tanh(logits / np.float32(cap))


def inputs(case, random):
    return (20 * random.standard_normal((case["rows"], case["n"]), "float32"),), {"cap": case["cap"]}
