"""select: keep only the rows whose logits are wanted. From here on the buffers of a program have that many rows."""

OPERANDS = {
    "out": "h [len(outputs), n]",
    "ins": ("h [rows, n]",),
    "weights": (),
    "args": (),
    "state": ("outputs: row indices, ascending",),
}
TOLERANCE = 0.0
CASES = tuple({"rows": rows, "n": n, "outputs": out} for rows, n, out in ((1, 33, (0,)), (7, 31, (6,)), (33, 64, (0, 31, 32))))
BENCH = ({"rows": 512, "n": 4096, "outputs": (511,)},)


def reference(h, *, outputs):
    return h[list(outputs)]


def inputs(case, random):
    return (random.standard_normal((case["rows"], case["n"]), "float32"),), {"outputs": case["outputs"]}
