"""expert_linear: y_j = W_e x_j + b_e for each expert e = e_j that a row is routed to. W is a stack of matrices, one per expert.

x has either one part for all experts of a row (gate and up) or one for each (down). `rows` = (first, count) uses only those
rows of every matrix of the stack, and of its biases: one part of a fused gate-and-up stack.
"""

OPERANDS = {
    "out": "y [rows, used * out]",
    "ins": ("x [rows, in] or [rows, used * in]", "routes [rows, 2 used] (ops/route.py)"),
    "weights": ("W [experts, out, in]", "b [experts, out] or None"),
    "args": ("used: experts per row", "rows: (first, count) of a fused W, optional"),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "experts": experts, "used": used, "in": columns, "out": out, "bias": bias, "apart": apart}
    for rows, experts, used, columns, out, bias, apart in (
        (1, 4, 2, 32, 32, False, False),
        (1, 8, 2, 64, 33, True, True),
        (7, 8, 3, 96, 64, True, False),
        (33, 4, 2, 256, 40, False, True),
        (64, 16, 4, 64, 96, False, False),
        (9, 128, 8, 32, 17, False, False),
        (40, 3, 1, 288, 65, True, True),
    )
)
CASES += ({"rows": 5, "experts": 4, "used": 2, "in": 64, "out": 96, "bias": True, "apart": False, "part": (32, 64)},)
BENCH = tuple(
    {"rows": rows, "experts": 128, "used": 8, "in": 2048, "out": 768, "bias": False, "apart": False} for rows in (1, 512)
)


def reference(x, routes, w, b, *, used, rows=None):
    import numpy as np

    first, count = rows or (0, w.shape[1])
    chosen = routes[:, used:].astype(int)
    parts = x.reshape(len(x), x.shape[1] // w.shape[2], w.shape[2])
    out = np.empty((len(x), used, count), np.float32)
    for row, experts in enumerate(chosen):  # each row by itself: its result must not depend on its company
        for j, e in enumerate(experts):
            y = w[e, first : first + count] @ parts[row, j % parts.shape[1]]
            out[row, j] = y if b is None else y + b[e, first : first + count]
    return out.reshape(len(x), used * count)


def inputs(case, random):
    import numpy as np

    rows, experts, used, columns = case["rows"], case["experts"], case["used"], case["in"]
    x = random.standard_normal((rows, columns * (used if case["apart"] else 1)), "float32")
    chosen = np.array([random.permutation(experts)[:used] for _ in range(rows)])
    chosen[: rows // 3] = chosen[0]  # some experts get many rows
    routes = np.concatenate([random.random((rows, used), "float32"), chosen.astype("float32")], 1)
    w = (random.standard_normal((experts, case["out"], columns), "float32") / columns**0.5).astype("float32")
    b = random.standard_normal((experts, case["out"]), "float32") if case["bias"] else None
    return (x, routes, w, b), {"used": used} | ({"rows": case["part"]} if "part" in case else {})
