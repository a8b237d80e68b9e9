"""streams_inject: s_j = s_j + y for every stream but the first; in place."""

OPERANDS = {
    "out": "s [rows, 4 n]",
    "ins": ("s [rows, 4 n]", "y [rows, n]"),
    "weights": (),
    "args": (),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = (1, 1), (1, 31), (2, 33), (7, 256), (33, 65)
CASES = tuple({"rows": rows, "n": n} for rows, n in SIZES)
BENCH = tuple({"rows": rows, "n": 2048} for rows in (1, 512))


def reference(s, y):
    parts = s.reshape(len(s), 4, s.shape[1] // 4).copy()
    parts[:, 1:] += y[:, None]
    return parts.reshape(s.shape)


def inputs(case, random):
    rows, n = case["rows"], case["n"]
    return (random.standard_normal((rows, 4 * n), "float32"), random.standard_normal((rows, n), "float32")), {}
