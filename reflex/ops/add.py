"""add: x + scale * y, the residual addition; in place."""

OPERANDS = {
    "out": "x [rows, n]",
    "ins": ("x [rows, n]", "y [rows, n]"),
    "weights": (),
    "args": ("scale: factor of y",),
    "state": (),
}
TOLERANCE = 1e-6
CASES = tuple(
    {"rows": rows, "n": n, "scale": s} for rows, n, s in ((1, 1, 1.0), (1, 31, 0.22), (2, 32, 1.0), (3, 33, 1.4), (33, 576, 1.0))
)
BENCH = ({"rows": 1, "n": 4096, "scale": 1.0}, {"rows": 512, "n": 4096, "scale": 1.0})


def reference(x, y, *, scale):
    import numpy as np

    return x + np.float32(scale) * y


def inputs(case, random):
    shape = (case["rows"], case["n"])
    return (random.standard_normal(shape, "float32"), random.standard_normal(shape, "float32")), {"scale": case["scale"]}
