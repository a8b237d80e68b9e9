"""delta_rule: the gated delta rule, a matrix S of state per head (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464).

Per token and head, with g = exp(a dt): S = g S; S = S + k (beta (v - S^T k))^T; o = S^T q / sqrt(key_dim). S is
[key_dim, value_dim], g one number, or one for each row of S where dt has one for each (Kimi Team 2025, arXiv 2510.26692). Value
head h reads head h mod key_heads of q and k ("tiled") or h // (heads / key_heads) ("grouped"). Strands as in conv; a state is
zeros before a text. One token at a time, so a row is the same, to the bit, however a text is cut.
"""

from .conv import strands_of

OPERANDS = {
    "out": "o [tokens, heads * value_dim]",
    "ins": (
        "q [tokens, key_heads * key_dim]",
        "k [tokens, key_heads * key_dim]",
        "v [tokens, heads * value_dim]",
        "dt [tokens, heads] or [tokens, heads * key_dim]",
        "beta [tokens, heads]",
    ),
    "weights": ("a [heads]",),
    "args": (
        "heads",
        "key_heads",
        "key_dim",
        "value_dim",
        "order: tiled or grouped",
        "channels: whether dt has a number for each row of S",
        "state: index of the state",
    ),
    "state": ("states: float32 [places, heads * key_dim * value_dim], changed", "strands: as of conv"),
}
TOLERANCE = 2e-5
CASES = tuple(
    {"rows": rows, "heads": h, "key_heads": g, "key_dim": kd, "value_dim": vd, "order": order, "channels": channels}
    for rows, h, g, kd, vd, order, channels in (
        (1, 1, 1, 1, 1, "tiled", False),
        (2, 4, 2, 16, 24, "tiled", False),
        (7, 4, 2, 32, 33, "grouped", False),
        (33, 3, 3, 128, 128, "tiled", True),
        (7, 6, 2, 17, 9, "grouped", True),
        (2, 2, 1, 160, 40, "tiled", False),
    )
)
WORDS = ("heads", "key_heads", "key_dim", "value_dim", "order", "channels")
BENCH = tuple(
    {"rows": rows, "heads": 32, "key_heads": 16, "key_dim": 128, "value_dim": 128, "order": "tiled", "channels": False}
    for rows in (1, 512)
)


def source_of(order, heads, key_heads):
    """Per value head the head of q and k that it reads."""
    return [h % key_heads if order == "tiled" else h // (heads // key_heads) for h in range(heads)]


def reference(q, k, v, dt, beta, a, *, heads, key_heads, key_dim, value_dim, order, channels, states, strands):
    import numpy as np

    rows, source = len(q), source_of(order, heads, key_heads)
    q, k = (part.reshape(rows, key_heads, key_dim)[:, source] for part in (q, k))
    v = v.reshape(rows, heads, value_dim)
    decay = np.exp(dt.reshape(rows, heads, -1) * a.reshape(heads, 1))[..., None]  # [rows, heads, key_dim or 1, 1]
    out = np.empty_like(v)
    for first, count, start, destination in strands:
        shape = (heads, key_dim, value_dim)
        s = np.zeros(shape, np.float32) if start < 0 else states[start].reshape(shape)
        for t in range(first, first + count):
            s = s * decay[t]
            error = beta[t][:, None] * (v[t] - (s * k[t][:, :, None]).sum(1))
            s = s + k[t][:, :, None] * error[:, None]
            out[t] = (s * q[t][:, :, None]).sum(1) / np.float32(key_dim**0.5)
        if destination >= 0:
            states[destination] = s.ravel()
    return out.reshape(rows, heads * value_dim)


def inputs(case, random):
    rows, words = case["rows"], {name: case[name] for name in WORDS}
    heads, g, kd, vd = (case[name] for name in WORDS[:4])
    q, k, v = (random.standard_normal((rows, n), "float32") for n in (g * kd, g * kd, heads * vd))
    k = k / kd**0.5  # near length 1, as it is normed
    dt = random.random((rows, heads * (kd if case["channels"] else 1)), "float32")
    beta = random.random((rows, heads), "float32")
    a = -random.random(heads, "float32")
    states = random.standard_normal((3, heads * kd * vd), "float32")
    return (q, k.astype("float32"), v, dt, beta, a), words | {"states": states, "strands": strands_of(rows)}
