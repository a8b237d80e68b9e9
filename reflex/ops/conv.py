"""conv: y_t = b + sum_j w[:, j] x_{t-K+1+j}, one filter of K taps per channel over the tokens of a strand; a causal convolution.

A strand is a run of rows that follow each other in one text: (first row, count, source, destination). What precedes its first
row is the tail that the state `source` holds, the last K - 1 rows x before it, oldest first; source -1: zeros, as before a text.
Its own last K - 1 rows become the tail of the state `destination`; destination -1: nothing is kept. Strands run in order, and
one may continue from what another left. Sums run over j upwards, so a row is the same, to the bit, however a text is cut.
"""

OPERANDS = {
    "out": "y [tokens, n]",
    "ins": ("x [tokens, n]",),
    "weights": ("w [channels, K]", "b [channels] or None"),
    "args": ("first: the channel of w and b that column 0 is", "taps: K", "state: index of the state"),
    "state": ("states: float32 [places, (K - 1) * n], changed", "strands: (first row, count, source, destination) of each"),
}
TOLERANCE = 1e-5
STRANDS = {  # cuts of rows, with what they continue from: fresh, from a state, from each other, in place, kept nowhere
    1: ((0, 1, -1, 0),),
    2: ((0, 1, 1, 0), (1, 1, 0, 0)),
    7: ((0, 3, -1, 0), (3, 1, 0, 1), (4, 2, 0, -1), (6, 1, 1, 1)),
    33: ((0, 20, 2, 1), (20, 1, 1, 0), (21, 12, 1, 2)),
}
CASES = tuple(
    {"rows": rows, "n": n, "channels": channels, "first": first, "taps": taps, "bias": bias}
    for rows, n, channels, first, taps, bias in (
        (1, 1, 1, 0, 4, False),
        (2, 31, 40, 9, 3, True),
        (7, 64, 64, 0, 4, True),
        (33, 100, 164, 64, 4, False),
        (7, 33, 33, 0, 2, False),
    )
)
BENCH = tuple({"rows": rows, "n": 8192, "channels": 8192, "first": 0, "taps": 4, "bias": False} for rows in (1, 512))


def reference(x, w, b, *, first, taps, states, strands):
    import numpy as np

    n = x.shape[1]
    w = w.reshape(-1, taps)[first : first + n]
    out = np.empty_like(x)
    for row, count, source, destination in strands:
        before = np.zeros((taps - 1, n), np.float32) if source < 0 else states[source].reshape(taps - 1, n)
        seen = np.concatenate([before, x[row : row + count]])
        y = np.zeros((count, n), np.float32) if b is None else np.tile(b[first : first + n], (count, 1))
        for j in range(taps):
            y = y + seen[j : j + count] * w[:, j]
        out[row : row + count] = y
        if destination >= 0:
            states[destination] = seen[count:].ravel()
    return out


def strands_of(rows):
    """Strands of a case; a benchmark's rows are one."""
    return STRANDS.get(rows, ((0, rows, 0, 0),))


def inputs(case, random):
    n, taps = case["n"], case["taps"]
    x = random.standard_normal((case["rows"], n), "float32")
    w = random.standard_normal((case["channels"], taps), "float32")
    b = random.standard_normal(case["channels"], "float32") if case["bias"] else None
    states = random.standard_normal((3, (taps - 1) * n), "float32")
    return (x, w, b), {"first": case["first"], "taps": taps, "states": states, "strands": strands_of(case["rows"])}
