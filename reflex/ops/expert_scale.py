"""expert_scale: x_j = w_j x_j, the parts of a row that belong to its experts times the weights of its routes; in place."""

OPERANDS = {
    "out": "x [rows, used * n]",
    "ins": ("x [rows, used * n]", "routes [rows, 2 used] (ops/route.py)"),
    "weights": (),
    "args": ("used: experts per row",),
    "state": (),
}
TOLERANCE = 1e-6
CASES = tuple(
    {"rows": rows, "n": n, "used": used} for rows, n, used in ((1, 1, 1), (1, 31, 2), (2, 33, 3), (3, 256, 1), (33, 576, 4))
)
BENCH = tuple({"rows": rows, "n": 8192, "used": 1} for rows in (1, 512))


def reference(x, routes, *, used):
    parts = x.reshape(len(x), used, x.shape[1] // used)
    return (parts * routes[:, :used, None]).reshape(x.shape)


def inputs(case, random):
    rows, used = case["rows"], case["used"]
    x = random.standard_normal((rows, used * case["n"]), "float32")
    return (x, random.random((rows, 2 * used), "float32")), {"used": used}
