"""gate_rows: y = y * sigmoid(w . h), one factor per row; in place. The gate of a shared expert (ffn_gate_inp_shexp)."""

OPERANDS = {
    "out": "y [rows, n]",
    "ins": ("y [rows, n]", "h [rows, in]"),
    "weights": ("w [in]",),
    "args": (),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = (1, 1, 1), (1, 31, 32), (2, 33, 33), (3, 256, 576), (33, 576, 1025)
CASES = tuple({"rows": rows, "n": n, "in": m} for rows, n, m in SIZES)
BENCH = tuple({"rows": rows, "n": 2048, "in": 2048} for rows in (1, 512))


def reference(y, h, w):
    import numpy as np

    with np.errstate(over="ignore"):
        return y / (1 + np.exp(-(h * w).sum(-1, keepdims=True)))


def inputs(case, random):
    y = random.standard_normal((case["rows"], case["n"]), "float32")
    h = random.standard_normal((case["rows"], case["in"]), "float32")
    w = random.standard_normal(case["in"], "float32") / case["in"] ** 0.5
    return (y, h, w.astype("float32")), {}
