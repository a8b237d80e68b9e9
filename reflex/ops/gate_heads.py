"""gate_heads: a_h = sigmoid(g_h) a_h, what each head gives times one gate of it; in place."""

OPERANDS = {
    "out": "a [rows, heads * n]",
    "ins": ("a [rows, heads * n]", "g [rows, heads]"),
    "weights": (),
    "args": ("heads",),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple({"rows": rows, "heads": h, "n": n} for rows, h, n in ((1, 1, 1), (1, 3, 31), (2, 4, 33), (7, 8, 64), (33, 6, 128)))
BENCH = tuple({"rows": rows, "heads": 64, "n": 128} for rows in (1, 512))


def reference(a, g, *, heads):
    import numpy as np

    with np.errstate(over="ignore"):
        return (a.reshape(len(a), heads, a.shape[1] // heads) / (1 + np.exp(-g[:, :, None]))).reshape(a.shape)


def inputs(case, random):
    rows, heads = case["rows"], case["heads"]
    a = random.standard_normal((rows, heads * case["n"]), "float32")
    return (a, 3 * random.standard_normal((rows, heads), "float32")), {"heads": heads}
