"""group_rmsnorm: rmsnorm over each group of a row's columns separately, every column with a weight of its own; in place.

The norm behind Mamba-2 (Dao and Gu 2024, arXiv 2405.21060), whose groups are those of its keys.
"""

OPERANDS = {
    "out": "y [rows, groups * size]",
    "ins": ("y [rows, groups * size]",),
    "weights": ("w [groups, size]",),
    "args": ("groups", "size", "eps: added to the mean square"),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = ((1, 1, 1), (1, 3, 31), (2, 4, 32), (3, 5, 33), (33, 2, 96))
CASES = tuple({"rows": rows, "groups": groups, "size": size, "eps": 1e-5} for rows, groups, size in SIZES)
BENCH = tuple({"rows": rows, "groups": 8, "size": 1024, "eps": 1e-5} for rows in (1, 512))


def reference(y, w, *, groups, size, eps):
    import numpy as np

    x = y.reshape(-1, groups, size)
    return (x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps)) * w.reshape(groups, size)).reshape(y.shape)


def inputs(case, random):
    groups, size = case["groups"], case["size"]
    y = random.standard_normal((case["rows"], groups * size), "float32")
    w = 1 + 0.3 * random.standard_normal((groups, size), "float32")
    return (y, w.astype("float32")), {name: case[name] for name in ("groups", "size", "eps")}
