"""streams_correct: s_j = p_j + (c_j + 1) (y - p_0), the streams as predicted and what a block made of the first (AltUp)."""

OPERANDS = {
    "out": "s [rows, 4 n]",
    "ins": ("p [rows, 4 n]", "y [rows, n]", "c [rows, 4]"),
    "weights": (),
    "args": (),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = (1, 1), (1, 31), (2, 33), (7, 256), (33, 65)
CASES = tuple({"rows": rows, "n": n} for rows, n in SIZES)
BENCH = tuple({"rows": rows, "n": 2048} for rows in (1, 512))


def reference(p, y, c):
    parts = p.reshape(len(p), 4, p.shape[1] // 4)
    return (parts + (c[:, :, None] + 1) * (y[:, None] - parts[:, :1])).reshape(p.shape)


def inputs(case, random):
    rows, n = case["rows"], case["n"]
    return (
        random.standard_normal((rows, 4 * n), "float32"),
        random.standard_normal((rows, n), "float32"),
        random.standard_normal((rows, 4), "float32"),
    ), {}
