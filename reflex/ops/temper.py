"""temper: q = q * (1 + scale ln(floor((p + ahead) / length) + 1)), p the position of the row; in place.

Sharpens the attention of far positions (Nakanishi 2025, arXiv 2501.19399; the key attention.temperature_scale).
"""

OPERANDS = {
    "out": "q [rows, n]",
    "ins": ("q [rows, n]",),
    "weights": (),
    "args": ("scale", "length: positions", "ahead: positions, 0 where it is absent; optional"),
    "state": ("positions: one per row",),
}
TOLERANCE = 1e-5
CASES = tuple({"rows": rows, "n": n, "scale": 0.1, "length": 16} for rows, n in ((1, 1), (1, 31), (7, 33), (33, 256)))
CASES += ({"rows": 40, "n": 8, "scale": 0.1, "length": 9, "ahead": 1},)
BENCH = tuple({"rows": rows, "n": 4096, "scale": 0.1, "length": 8192} for rows in (1, 512))


def reference(q, *, scale, length, positions, ahead=0):
    import numpy as np

    steps = np.floor((np.asarray(positions, np.float64) + ahead) / length) + 1
    return q * (1 + scale * np.log(steps)).astype(np.float32)[:, None]


def inputs(case, random):
    q = random.standard_normal((case["rows"], case["n"]), "float32")
    positions = random.integers(0, 200, case["rows"]).tolist()
    words = {"scale": case["scale"], "length": case["length"], "positions": positions}
    return (q,), words | ({"ahead": case["ahead"]} if "ahead" in case else {})
