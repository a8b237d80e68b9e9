"""weigh: x = w x, every element times a weight of its column, or times the only weight; in place."""

OPERANDS = {
    "out": "x [rows, n]",
    "ins": ("x [rows, n]",),
    "weights": ("w [n] or [1]",),
    "args": (),
    "state": (),
}
TOLERANCE = 1e-6
SIZES = (1, 1), (1, 31), (2, 33), (7, 256), (33, 1025)
CASES = tuple({"rows": rows, "n": n, "one": one} for one in (False, True) for rows, n in SIZES)
BENCH = tuple({"rows": rows, "n": 4096, "one": True} for rows in (1, 512))


def reference(x, w):
    return x * w


def inputs(case, random):
    count = 1 if case["one"] else case["n"]
    return (random.standard_normal((case["rows"], case["n"]), "float32"), random.standard_normal(count, "float32")), {}
