"""head_linear: y_h = (W_h x_h[:in] | x_h[in:]): a matrix of its own for the first dimensions of every head; others are copied.

Multi-head latent attention (arXiv 2405.04434, 2.1) brings queries into the space of the cache, and results out of it, this way.
`rows` = (first, count) uses only those rows of every W_h: one part of a fused tensor. `transposed`: the transposes of the matrices.
"""

OPERANDS = {
    "out": "y [rows, heads * (out + head_dim - in)]",
    "ins": ("x [rows, heads * head_dim]",),
    "weights": ("W [heads, out, in], or [heads, in, out] transposed; the first two may be one dimension",),
    "args": ("heads", "head_dim", "rows: (first, count) of every W_h, optional", "transposed: True, optional"),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "heads": heads, "in": columns, "out": out, "rest": rest}
    for rows, heads, columns, out, rest in (
        (1, 1, 32, 1, 0),
        (1, 4, 32, 33, 8),
        (2, 3, 64, 40, 0),
        (7, 4, 128, 96, 64),
        (33, 2, 96, 65, 5),
        (5, 16, 512, 128, 0),
        (40, 2, 256, 31, 32),
    )
)
CASES += tuple(case | {"part": (8, 20)} for case in CASES[2:5])
CASES += tuple(case | {"transposed": True} for case in CASES)
BENCH = tuple({"rows": rows, "heads": 16, "in": 128, "out": 512, "rest": 64} for rows in (1, 512))


def reference(x, w, *, heads, head_dim, rows=None, transposed=False):
    import numpy as np

    w = w.reshape(heads, -1, w.shape[-1])
    if rows is not None:
        w = w[:, rows[0] : rows[0] + rows[1]]
    if transposed:
        w = w.swapaxes(1, 2)
    x = x.reshape(-1, heads, head_dim)
    columns = w.shape[2]
    y = np.empty((len(x), heads, w.shape[1] + head_dim - columns), np.float32)
    y[..., w.shape[1] :] = x[..., columns:]
    for row in range(len(x)):  # each row by itself: its result must not depend on its company
        y[row, :, : w.shape[1]] = (w @ x[row, :, :columns, None])[..., 0]
    return y.reshape(len(x), y.shape[1] * y.shape[2])


def inputs(case, random):
    heads, rest, words = case["heads"], case["rest"], {"heads": case["heads"]}
    shape = [case["out"], case["in"]]  # as stored
    columns = case["in"]
    if case.get("transposed"):
        words["transposed"] = True
        columns = shape[0]
    if "part" in case:
        words["rows"] = case["part"]
        columns = case["part"][1] if case.get("transposed") else columns
    x = random.standard_normal((case["rows"], heads * (columns + rest)), "float32")
    w = random.standard_normal((heads, *shape), "float32") / columns**0.5
    return (x, w.astype("float32")), words | {"head_dim": columns + rest}
