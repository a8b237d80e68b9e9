"""add_position: x = x + P[position of the row], a learned embedding of positions (position_embd); in place.

P may lie in any block format; like the token embedding it is read by row.
"""

OPERANDS = {
    "out": "x [rows, n]",
    "ins": ("x [rows, n]",),
    "weights": ("P [context, n]",),
    "args": (),
    "state": ("positions: one per row",),
}
TOLERANCE = 1e-6
SIZES = (1, 32, 1), (1, 31, 9), (2, 33, 40), (33, 256, 64)
CASES = tuple({"rows": rows, "n": n, "context": context} for rows, n, context in SIZES)
BENCH = tuple({"rows": rows, "n": 1024, "context": 1024} for rows in (1, 512))


def reference(x, p, *, positions):
    return x + p[positions]


def inputs(case, random):
    rows, n, context = case["rows"], case["n"], case["context"]
    x, p = random.standard_normal((rows, n), "float32"), random.standard_normal((context, n), "float32")
    return (x, p), {"positions": random.integers(0, context, rows).tolist()}
