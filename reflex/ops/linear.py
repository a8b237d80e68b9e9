"""linear: y = W h + b. W is [out, in] in rows (GGUF ne = [in, out]), in any block format; b is optional.

`rows` = (first, count) uses only those rows of W and the bias from `bias_row` on: one part of a fused tensor.
"""

OPERANDS = {
    "out": "y [rows, out]",
    "ins": ("h [rows, in]",),
    "weights": ("W [out, in]", "b [out] or None"),
    "args": ("rows: (first, count) of a fused W, optional", "bias_row: where its part of b starts, optional"),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "in": columns, "out": out, "bias": bias}
    for rows, columns, out, bias in (
        (1, 1, 1, False),
        (1, 32, 31, True),
        (2, 64, 32, False),
        (3, 256, 33, True),
        (4, 288, 65, False),
        (31, 96, 17, True),
        (32, 512, 64, False),
        (33, 576, 129, True),
    )
)
CASES += ({"rows": 3, "in": 64, "out": 96, "bias": True, "part": (32, 33), "bias_row": 32},)
CASES += ({"rows": 1, "in": 64, "out": 96, "bias": True, "part": (64, 32), "bias_row": 0},)
BENCH = tuple({"rows": rows, "in": 2048, "out": 2048, "bias": False} for rows in (1, 8, 512))


BLOCK = 32  # rows of h in every product


def product(h, w):
    """h w^T in products of one size, the last filled up with zeros: a library may round differently for another size."""
    import numpy as np

    out = np.empty((len(h), len(w)), np.float32)
    for first in range(0, len(h), BLOCK):
        part = h[first : first + BLOCK]
        missing = BLOCK - len(part)
        full = np.concatenate([part, np.zeros((missing, h.shape[1]), np.float32)]) if missing else part
        out[first : first + BLOCK] = (full @ w.T)[: len(part)]
    return out


def reference(h, w, b, *, rows=None, bias_row=0):
    w = w.reshape(-1, w.shape[-1])  # of a stack all matrices below each other
    if rows is not None:
        w = w[rows[0] : rows[0] + rows[1]]
    y = product(h, w)
    return y if b is None else y + b[bias_row : bias_row + len(w)]


def inputs(case, random):
    h = random.standard_normal((case["rows"], case["in"]), "float32")
    w = random.standard_normal((case["out"], case["in"]), "float32") / case["in"] ** 0.5
    b = random.standard_normal(case["out"], "float32") if case["bias"] else None
    part = {"rows": case["part"], "bias_row": case["bias_row"]} if "part" in case else {}
    return (h, w.astype("float32"), b), part
