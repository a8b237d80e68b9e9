"""bias: x = x + b over each row; in place. For norms whose formula has no bias of its own but whose file does (phimoe)."""

OPERANDS = {"out": "x [rows, n]", "ins": ("x [rows, n]",), "weights": ("b [n]",), "args": (), "state": ()}
TOLERANCE = 1e-6
CASES = tuple({"rows": rows, "n": n} for rows, n in ((1, 1), (1, 31), (2, 33), (3, 256), (33, 576)))
BENCH = tuple({"rows": rows, "n": 4096} for rows in (1, 512))


def reference(x, b):
    return x + b


def inputs(case, random):
    n = case["n"]
    return (random.standard_normal((case["rows"], n), "float32"), random.standard_normal(n, "float32")), {}
