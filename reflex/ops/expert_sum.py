"""expert_sum: y = sum_j w_j x_j, the results of a row's experts times the weights of its routes, added in their order.

`weighted` False: without the weights, which multiplied what the experts read (ops/expert_scale.py).
"""

OPERANDS = {
    "out": "y [rows, n]",
    "ins": ("x [rows, used * n]", "routes [rows, 2 used] (ops/route.py)"),
    "weights": (),
    "args": ("used: experts per row", "weighted: False, optional"),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = (1, 1, 1), (1, 31, 2), (2, 33, 3), (3, 256, 8), (33, 576, 4)
CASES = tuple({"rows": rows, "n": n, "used": used} for rows, n, used in SIZES)
CASES += tuple(case | {"weighted": False} for case in CASES[::2])
BENCH = tuple({"rows": rows, "n": 2048, "used": 8} for rows in (1, 512))


def reference(x, routes, *, used, weighted=True):
    parts = x.reshape(len(x), used, x.shape[1] // used)
    if not weighted:
        routes = routes * 0 + 1
    out = parts[:, 0] * routes[:, :1]
    for j in range(1, used):
        out = out + parts[:, j] * routes[:, j : j + 1]
    return out


def inputs(case, random):
    rows, used = case["rows"], case["used"]
    x = random.standard_normal((rows, used * case["n"]), "float32")
    words = {"used": used} | ({"weighted": False} if "weighted" in case else {})
    return (x, random.random((rows, 2 * used), "float32")), words
