"""streams_begin: s = (x | o_1 |x|/|o_1| | o_2 |x|/|o_2| | o_3 |x|/|o_3|), the first stream and others brought to its length.

Of a stream of zeros nothing is made but zeros. The start of AltUp (arXiv 2301.13310).
"""

OPERANDS = {
    "out": "s [rows, 4 n]",
    "ins": ("x [rows, n]", "o [rows, 3 n]"),
    "weights": (),
    "args": (),
    "state": (),
}
TOLERANCE = 1e-5
SIZES = (1, 1), (1, 31), (2, 33), (7, 256), (33, 65)
CASES = tuple({"rows": rows, "n": n} for rows, n in SIZES)
BENCH = tuple({"rows": rows, "n": 2048} for rows in (1, 512))


def of_length(parts, x):
    """parts [rows, streams, n], each brought to the length of x [rows, n]."""
    import numpy as np

    length = np.sqrt(np.square(x).sum(-1))[:, None, None]
    return parts * (length / np.sqrt(np.maximum(np.square(parts).sum(-1, keepdims=True), np.float32(1e-30))))



def reference(x, o):
    import numpy as np

    return np.concatenate([x, of_length(o.reshape(len(o), 3, x.shape[1]), x).reshape(o.shape)], 1)


def inputs(case, random):
    rows, n = case["rows"], case["n"]
    return (
        random.standard_normal((rows, n), "float32"),
        random.standard_normal((rows, 3 * n), "float32"),
    ), {}
