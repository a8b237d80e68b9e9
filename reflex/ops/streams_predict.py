"""streams_predict: p_j = s_j + sum_k c_(4j+k) s_k, all four streams from all (AltUp, arXiv 2301.13310)."""

OPERANDS = {
    "out": "p [rows, 4 n]",
    "ins": ("s [rows, 4 n]", "c [rows, 16]"),
    "weights": (),
    "args": (),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = (1, 1), (1, 31), (2, 33), (7, 256), (33, 65)
CASES = tuple({"rows": rows, "n": n} for rows, n in SIZES)
BENCH = tuple({"rows": rows, "n": 2048} for rows in (1, 512))


def reference(s, c):
    parts = s.reshape(len(s), 4, s.shape[1] // 4)
    return (parts + c.reshape(len(c), 4, 4) @ parts).reshape(s.shape)


def inputs(case, random):
    rows, n = case["rows"], case["n"]
    return (random.standard_normal((rows, 4 * n), "float32"), random.standard_normal((rows, 16), "float32")), {}
