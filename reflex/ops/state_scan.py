"""state_scan: the state-space recurrence of Mamba-2, a matrix S of state per head (Dao and Gu 2024, arXiv 2405.21060).

Per token and head: S = exp(a dt) S + B (dt u)^T; y = S^T C + d u. S is [state_dim, head_dim]; head h reads group
h // (heads / groups) of B and C. Strands as in conv; a state is zeros before a text. One token at a time, so a row is the same,
to the bit, however a text is cut.
"""

from .conv import strands_of

OPERANDS = {
    "out": "y [tokens, heads * head_dim]",
    "ins": (
        "u [tokens, heads * head_dim]",
        "B [tokens, groups * state_dim]",
        "C [tokens, groups * state_dim]",
        "dt [tokens, heads]",
    ),
    "weights": ("a [heads]", "d [heads]"),
    "args": ("heads", "head_dim", "groups", "state_dim", "state: index of the state"),
    "state": ("states: float32 [places, heads * state_dim * head_dim], changed", "strands: as of conv"),
}
TOLERANCE = 2e-5
WORDS = ("heads", "head_dim", "groups", "state_dim")
CASES = tuple(
    {"rows": rows, "heads": h, "head_dim": p, "groups": g, "state_dim": n}
    for rows, h, p, g, n in ((1, 1, 1, 1, 1), (2, 4, 16, 2, 8), (7, 6, 33, 3, 16), (33, 4, 64, 1, 128), (7, 2, 40, 2, 256))
)
BENCH = tuple({"rows": rows, "heads": 128, "head_dim": 64, "groups": 8, "state_dim": 128} for rows in (1, 512))


def reference(u, b, c, dt, a, d, *, heads, head_dim, groups, state_dim, states, strands):
    import numpy as np

    rows = len(u)
    u = u.reshape(rows, heads, head_dim)
    group = np.arange(heads) // (heads // groups)
    b, c = (part.reshape(rows, groups, state_dim)[:, group, :, None] for part in (b, c))
    decay = np.exp(dt * a.reshape(heads))[:, :, None, None]
    out = np.empty_like(u)
    for first, count, start, destination in strands:
        shape = (heads, state_dim, head_dim)
        s = np.zeros(shape, np.float32) if start < 0 else states[start].reshape(shape)
        for t in range(first, first + count):
            s = s * decay[t] + b[t] * (dt[t][:, None] * u[t])[:, None]
            out[t] = (s * c[t]).sum(1) + d.reshape(heads, 1) * u[t]
        if destination >= 0:
            states[destination] = s.ravel()
    return out.reshape(rows, heads * head_dim)


def inputs(case, random):
    rows, words = case["rows"], {name: case[name] for name in WORDS}
    heads, p, groups, n = (case[name] for name in WORDS)
    u, b, c = (random.standard_normal((rows, size), "float32") for size in (heads * p, groups * n, groups * n))
    dt = random.random((rows, heads), "float32")
    a = -random.random(heads, "float32")
    d = random.standard_normal(heads, "float32")
    states = random.standard_normal((3, heads * n * p), "float32")
    return (u, b, c, dt, a, d), words | {"states": states, "strands": strands_of(rows)}
