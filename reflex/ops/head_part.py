"""head_part: some columns of each head, q[h * head_dim + i] = x[h * stride + first + i], where heads hold several things."""

OPERANDS = {
    "out": "q [rows, heads * head_dim]",
    "ins": ("x [rows, heads * stride]",),
    "weights": (),
    "args": ("heads", "head_dim: columns taken of each", "stride: columns that a head has in x", "first: of the columns taken"),
    "state": (),
}
TOLERANCE = 0.0
SIZES = ((1, 1, 1, 2, 1), (2, 3, 31, 64, 0), (3, 5, 33, 66, 33), (33, 4, 32, 64, 32), (1, 16, 2, 4, 2))
CASES = tuple(
    {"rows": rows, "heads": heads, "head_dim": dim, "stride": stride, "first": first} for rows, heads, dim, stride, first in SIZES
)
BENCH = tuple({"rows": rows, "heads": 16, "head_dim": 256, "stride": 512, "first": 256} for rows in (1, 512))


def reference(x, *, heads, head_dim, stride, first):
    return x.reshape(-1, heads, stride)[:, :, first : first + head_dim].reshape(-1, heads * head_dim)


def inputs(case, random):
    x = random.standard_normal((case["rows"], case["heads"] * case["stride"]), "float32")
    return (x,), {name: case[name] for name in ("heads", "head_dim", "stride", "first")}
