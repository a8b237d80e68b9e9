"""rope: rotary position embedding of each head, in place (Su et al. 2021, arXiv 2104.09864).

Pair i is turned by positions[r] * frequencies[i]; cos and sin are multiplied by magnitude. Style `norm` turns the pairs
(2i, 2i+1), `neox` the pairs (i, i + n/2), n = 2 len(frequencies), counted from `first` on; other dimensions are copied. Angles
are float64.
"""

OPERANDS = {
    "out": "q [rows, heads * head_dim]",
    "ins": ("q [rows, heads * head_dim]",),
    "weights": (),
    "args": ("heads", "head_dim", "table: index of the program's ropes", "first: dimension of a head that turns first, optional"),
    "state": ("positions: one per row", "rope: the Rope of that table (frequencies, magnitude, style)"),
}
TOLERANCE = 2e-5
CASES = tuple(
    {"rows": rows, "heads": heads, "head_dim": dim, "dims": dims, "style": style, "start": start, "magnitude": magnitude}
    for style in ("norm", "neox")
    for rows, heads, dim, dims, start, magnitude in (
        (1, 1, 2, 2, 0, 1.0),
        (1, 3, 24, 24, 7, 1.0),
        (3, 2, 64, 64, 30, 1.0),
        (33, 4, 32, 16, 0, 1.2),
        (2, 5, 80, 34, 8191, 1.0),
        (2, 1, 256, 256, 31, 0.7),
        (2, 1, 64, 64, 20000, 1.4),
    )
)
CASES += tuple(CASES[i] | {"first": 40} for i in (3, 10))
BENCH = tuple(
    {"rows": rows, "heads": 32, "head_dim": 128, "dims": 128, "style": "neox", "start": 0, "magnitude": 1.0} for rows in (1, 512)
)


def reference(q, *, heads, head_dim, positions, rope, first=0):
    import numpy as np

    half = len(rope.frequencies)
    angle = np.asarray(positions, np.float64)[:, None] * np.asarray(rope.frequencies)
    cos = (np.cos(angle) * rope.magnitude).astype(np.float32)[:, None]
    sin = (np.sin(angle) * rope.magnitude).astype(np.float32)[:, None]
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if rope.style == "norm" else (slice(0, half), slice(half, 2 * half))
    out = q.reshape(-1, heads, head_dim).copy()
    turned = out[..., first:]
    x, y = turned[..., pairs[0]].copy(), turned[..., pairs[1]].copy()
    turned[..., pairs[0]] = x * cos - y * sin
    turned[..., pairs[1]] = x * sin + y * cos
    return out.reshape(q.shape)


class Table:
    """What `reference` reads of a rotary table; programs bring their own record of the same shape."""

    __slots__ = ("frequencies", "magnitude", "style")

    def __init__(self, frequencies, magnitude, style):
        self.frequencies = frequencies
        self.magnitude = magnitude
        self.style = style


def inputs(case, random):
    first = case.get("first", 0)
    dim = first + case["head_dim"]
    q = random.standard_normal((case["rows"], case["heads"] * dim), "float32")
    frequencies = tuple(10000.0 ** (-2 * i / case["dims"]) for i in range(case["dims"] // 2))
    return (q,), {
        "heads": case["heads"],
        "head_dim": dim,
        "positions": [case["start"] + 3 * r for r in range(case["rows"])],
        "rope": Table(frequencies, case["magnitude"], case["style"]),
    } | ({"first": first} if first else {})
