"""Formulas of the operations with a state, in plain Python floats (64 bits), for tests/pure/test_ops.py.

Rows are lists of floats; `states` is a list of lists and is changed. Nothing here remembers more than what the strands say.
"""

from math import exp


def before(states, source, count):
    return [0.0] * count if source < 0 else list(states[source])


def conv(x, w, b, *, first, taps, states, strands):
    n, out = len(x[0]), [None] * len(x)
    for row, count, source, destination in strands:
        flat = before(states, source, (taps - 1) * n)
        seen = [flat[i * n : (i + 1) * n] for i in range(taps - 1)] + x[row : row + count]
        for t in range(count):
            line = [sum(seen[t + j][c] * w[first + c][j] for j in range(taps)) for c in range(n)]
            out[row + t] = [v + (b[first + c] if b else 0) for c, v in enumerate(line)]
        if destination >= 0:
            states[destination] = [v for line in seen[len(seen) - taps + 1 :] for v in line]
    return out


def delta_rule(q, k, v, dt, beta, a, *, heads, key_heads, key_dim, value_dim, order, channels, states, strands):
    out = [[0.0] * (heads * value_dim) for _ in q]
    for row, count, source, destination in strands:
        s = before(states, source, heads * key_dim * value_dim)
        for t in range(row, row + count):
            for h in range(heads):
                own = h % key_heads if order == "tiled" else h * key_heads // heads
                keys, queries = (x[t][own * key_dim : (own + 1) * key_dim] for x in (k, q))
                g = [exp(a[h] * (dt[t][h * key_dim + i] if channels else dt[t][h])) for i in range(key_dim)]
                for j in range(value_dim):
                    places = [(h * key_dim + i) * value_dim + j for i in range(key_dim)]
                    old = [s[place] * g[i] for i, place in enumerate(places)]
                    error = beta[t][h] * (v[t][h * value_dim + j] - sum(x * y for x, y in zip(old, keys, strict=True)))
                    new = [x + y * error for x, y in zip(old, keys, strict=True)]
                    for place, value in zip(places, new, strict=True):
                        s[place] = value
                    read = sum(x * y for x, y in zip(new, queries, strict=True))
                    out[t][h * value_dim + j] = read / key_dim**0.5
        if destination >= 0:
            states[destination] = s
    return out


def state_scan(u, b, c, dt, a, d, *, heads, head_dim, groups, state_dim, states, strands):
    out = [[0.0] * (heads * head_dim) for _ in u]
    for row, count, source, destination in strands:
        s = before(states, source, heads * state_dim * head_dim)
        for t in range(row, row + count):
            for h in range(heads):
                own, decay = h * groups // heads, exp(a[h] * dt[t][h])
                keys, queries = (x[t][own * state_dim : (own + 1) * state_dim] for x in (b, c))
                for j in range(head_dim):
                    value, total = u[t][h * head_dim + j], 0.0
                    for n in range(state_dim):
                        place = (h * state_dim + n) * head_dim + j
                        s[place] = decay * s[place] + keys[n] * dt[t][h] * value
                        total += s[place] * queries[n]
                    out[t][h * head_dim + j] = total + d[h] * value
        if destination >= 0:
            states[destination] = s
    return out
