"""route_scale: w_j = s[e_j] w_j, the weights of routes times a factor of their experts (ffn_down_exps.scale); in place."""

OPERANDS = {
    "out": "routes [rows, 2 used] (ops/route.py)",
    "ins": ("routes [rows, 2 used]",),
    "weights": ("s [experts]",),
    "args": ("used: experts per row",),
    "state": (),
}
TOLERANCE = 1e-6
CASES = tuple({"rows": rows, "experts": e, "used": used} for rows, e, used in ((1, 1, 1), (1, 8, 3), (7, 128, 8), (33, 32, 4)))
BENCH = tuple({"rows": rows, "experts": 128, "used": 8} for rows in (1, 512))


def reference(routes, s, *, used):
    out = routes.copy()
    out[:, :used] *= s[routes[:, used:].astype(int)]
    return out


def inputs(case, random):
    import numpy as np

    rows, used = case["rows"], case["used"]
    chosen = np.array([random.permutation(case["experts"])[:used] for _ in range(rows)], np.float32)
    routes = np.concatenate([random.random((rows, used), "float32"), chosen], 1)
    return (routes, 1 + 0.3 * random.standard_normal(case["experts"], "float32")), {"used": used}
