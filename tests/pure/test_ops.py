"""Each operation's numpy reference against its formula, written out here in plain Python floats (64 bits).

The folder is enumerated: an operation without a formula below fails. Loops over elements, no numpy in the formulas.
"""

from math import cos, erf, exp, log, pi, sin, sqrt, tanh

import numpy as np
import pytest
import recurrent

from reflex import ops
from reflex.errors import InternalError

# ---- formulas: rows are lists of floats ----------------------------------------------------------------------


def embed(table, *, scale, ids):
    return [[scale * value for value in table[i]] for i in ids]


def norm(x, w, eps):
    root = sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v / root * g for v, g in zip(x, w, strict=True)]


def rmsnorm(x, w, *, eps):
    return [norm(row, w, eps) for row in x]


def centered(x, eps):
    mean = sum(x) / len(x)
    root = sqrt(sum((v - mean) ** 2 for v in x) / len(x) + eps)
    return [(v - mean) / root for v in x]


def layernorm(x, w, b, *, eps):
    ones, zeros = [1.0] * len(x[0]), [0.0] * len(x[0])
    return [[v * g + c for v, g, c in zip(centered(row, eps), w or ones, b or zeros, strict=True)] for row in x]


def head_layernorm(q, w, *, heads, head_dim, eps):
    out = []
    for row in q:
        parts = [row[h * head_dim : (h + 1) * head_dim] for h in range(heads)]
        out.append([v * g for part, own in zip(parts, w, strict=True) for v, g in zip(centered(part, eps), own, strict=True)])
    return out


def head_rmsnorm(q, w, *, heads, head_dim, eps):
    count, ones = len(w) if w else head_dim, [1.0] * head_dim
    starts = [h * head_dim for h in range(heads)]
    return [[v for s in starts for v in (*norm(row[s : s + count], w or ones, eps), *row[s + count : s + head_dim])] for row in q]


def head_linear(x, w, *, heads, head_dim, rows=None, transposed=False):
    out = []
    for row in x:
        line = []
        for h in range(heads):
            part, matrix = row[h * head_dim : (h + 1) * head_dim], w[h]
            if rows:
                matrix = matrix[rows[0] : sum(rows)]
            if transposed:
                matrix = [list(column) for column in zip(*matrix, strict=True)]
            line += [sum(a * c for a, c in zip(part, own, strict=False)) for own in matrix] + part[len(matrix[0]) :]
        out.append(line)
    return out


def linear(h, w, b, *, rows=None, bias_row=0):
    first, count = rows or (0, len(w))
    bias = b[bias_row : bias_row + count] if b else [0.0] * count
    return [[sum(a * c for a, c in zip(x, w[first + o], strict=True)) + bias[o] for o in range(count)] for x in h]


def rope(q, *, heads, head_dim, positions, rope, first=0):
    out = [list(row) for row in q]
    half = len(rope.frequencies)
    for row, position in zip(out, positions, strict=True):
        for h in range(heads):
            for i, frequency in enumerate(rope.frequencies):
                a, b = (2 * i, 2 * i + 1) if rope.style == "norm" else (i, i + half)
                a, b = a + h * head_dim + first, b + h * head_dim + first
                turned = complex(row[a], row[b]) * complex(cos(position * frequency), sin(position * frequency)) * rope.magnitude
                row[a], row[b] = turned.real, turned.imag
    return out


def attention(
    q,
    keys,
    values,
    sinks=None,
    *,
    heads,
    kv_heads,
    key_dim,
    value_dim,
    scale,
    window,
    softcap,
    slots,
    positions,
    shared,
    branch,
    runs=(),
    chunk=0,
):
    out = []
    for r, row in enumerate(q):
        path = [*range(shared[r])]
        for first, end in runs[r] if runs else ():
            path += range(first, end)
        path += range(branch[r], slots[r] + 1)
        assert len(path) == positions[r] + 1
        line = []
        for head in range(heads):
            source = head * kv_heads // heads
            query = row[head * key_dim : (head + 1) * key_dim]
            weights = {}
            for position, slot in enumerate(path):
                if (window and position <= positions[r] - window) or (chunk and position // chunk < positions[r] // chunk):
                    continue
                key = keys[slot][source * key_dim : (source + 1) * key_dim]
                score = scale * sum(a * b for a, b in zip(query, key, strict=True))
                weights[slot] = exp(softcap * tanh(score / softcap) if softcap else score)
            total = sum(weights.values()) + (exp(sinks[head]) if sinks else 0)
            for d in range(source * value_dim, (source + 1) * value_dim):
                line.append(sum(weight * values[slot][d] for slot, weight in weights.items()) / total)
        out.append(line)
    return out


def latent_attention(q, keys, **words):
    values = [key[: words["value_dim"]] for key in keys]
    return attention(q, keys, values, kv_heads=1, window=0, softcap=0.0, **words)


def add(x, y, *, scale):
    return [[a + scale * b for a, b in zip(p, q, strict=True)] for p, q in zip(x, y, strict=True)]


def activation(x, act, parameters=()):
    if act == "silu":
        return x * exp(x) / (1 + exp(x))
    if act == "relu2":
        return x * x if x > 0 else 0.0
    if act == "sigmoid":
        return 1 / (1 + exp(-x))
    if act == "softplus":
        return log(1 + exp(x))
    if act == "xielu":
        alpha_p, alpha_n, beta, eps = parameters
        if x > 0:
            return log(1 + exp(alpha_p)) * x * x + beta * x
        return (exp(min(x, eps)) - 1 - x) * (beta + log(1 + exp(alpha_n))) + beta * x
    return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


def unary(x, *, act, parameters):
    return [[activation(v, act, parameters) for v in row] for row in x]


def gated(g, u, *, act, limit=0.0):
    if limit:
        pairs = [list(zip(p, q, strict=True)) for p, q in zip(g, u, strict=True)]
        return [[min(activation(a, act), limit) * max(-limit, min(b, limit)) for a, b in row] for row in pairs]
    if act == "swiglu_oai":
        pairs = [[(min(a, 7), max(-7, min(b, 7))) for a, b in zip(p, q, strict=True)] for p, q in zip(g, u, strict=True)]
        return [[a / (1 + exp(-1.702 * a)) * (b + 1) for a, b in row] for row in pairs]
    if act in ("sigmoid", "product"):
        gates = g if act == "product" else unary(g, act=act, parameters=())
        return [[a * b for a, b in zip(p, q, strict=True)] for p, q in zip(gates, u, strict=True)]
    return [[activation(a, act) * b for a, b in zip(p, q, strict=True)] for p, q in zip(g, u, strict=True)]


def head_l2norm(q, *, heads, head_dim, eps):
    ones = [head_dim**-0.5] * head_dim  # the root of the mean times that of the count is the root of the sum
    return head_rmsnorm(q, ones, heads=heads, head_dim=head_dim, eps=eps / head_dim)


def group_rmsnorm(y, w, *, groups, size, eps):
    return [[v for g in range(groups) for v in norm(row[g * size : (g + 1) * size], w[g], eps)] for row in y]


def head_part(x, *, heads, head_dim, stride, first):
    return [[row[h * stride + first + i] for h in range(heads) for i in range(head_dim)] for row in x]


def select(h, *, outputs):
    return [h[i] for i in outputs]


def scale(logits, *, factor):
    return [[factor * v for v in row] for row in logits]


def softcap(logits, *, cap):
    return [[cap * tanh(v / cap) for v in row] for row in logits]


def clamp(x, *, limit):
    return [[max(-limit, min(limit, v)) for v in row] for row in x]


def bias(x, b):
    return [[v + c for v, c in zip(row, b, strict=True)] for row in x]


def add_position(x, p, *, positions):
    return [[v + c for v, c in zip(row, p[at], strict=True)] for row, at in zip(x, positions, strict=True)]


def temper(q, *, scale, length, positions, ahead=0):
    return [[v * (1 + scale * log((at + ahead) // length + 1)) for v in row] for row, at in zip(q, positions, strict=True)]


def route(logits, bias, *, used, gating, renormalize, scale, groups, groups_used):
    out = []
    for row in logits:
        raised = [exp(v) for v in row]
        if gating == "softmax":
            p = [v / sum(raised) for v in raised]
        else:
            p = [v / (1 + v) for v in raised] if gating == "sigmoid" else row
        choice = {e: v + (bias[e] if bias else 0) for e, v in enumerate(p)}
        if groups > 1:
            size = len(row) // groups
            score = {g: sum(sorted(choice[e] for e in range(g * size, (g + 1) * size))[-2:]) for g in range(groups)}
            kept = sorted(score, key=lambda g: -score[g])[:groups_used]
            choice = {e: v for e, v in choice.items() if e // size in kept}
        chosen = sorted(choice, key=lambda e: -choice[e])[:used]
        w = [p[e] for e in chosen]
        if gating == "softmax of chosen":
            w = [exp(v) / sum(map(exp, w)) for v in w]
        if gating == "sigmoid of chosen":
            w = [1 / (1 + exp(-v)) for v in w]
        if renormalize:
            w = [v / max(sum(w), 2**-14) for v in w]
        out.append([scale * v for v in w] + [float(e) for e in chosen])
    return out


def expert_linear(x, routes, w, b, *, used, rows=None):
    out = []
    for row, route in zip(x, routes, strict=True):
        line = []
        for j, e in enumerate(map(int, route[used:])):
            first, count = rows or (0, len(w[e]))
            columns = len(w[e][0])
            part = row[j * columns : (j + 1) * columns] if len(row) > columns else row
            for o in range(first, first + count):
                line.append(sum(a * c for a, c in zip(part, w[e][o], strict=True)) + (b[e][o] if b else 0))
        out.append(line)
    return out


def weigh(x, w):
    return [[v * (w[0] if len(w) == 1 else w[i]) for i, v in enumerate(row)] for row in x]


def route_scale(routes, s, *, used):
    return [[v * s[int(row[used + i])] if i < used else v for i, v in enumerate(row)] for row in routes]


def gate_heads(a, g, *, heads):
    n = len(a[0]) // heads
    return [[v / (1 + exp(-gates[i // n])) for i, v in enumerate(row)] for row, gates in zip(a, g, strict=True)]


def sparsify(x, *, deviations):
    out = []
    for row in x:
        mean = sum(row) / len(row)
        cut = mean + deviations * sqrt(sum((v - mean) ** 2 for v in row) / (len(row) - 1))
        out.append([max(v - cut, 0.0) for v in row])
    return out


def quarters(row, count=4):
    n = len(row) // count
    return [row[j * n : (j + 1) * n] for j in range(count)]


def length(part):
    return sqrt(sum(v * v for v in part))


def streams_begin(x, o):
    return [
        first + [v * length(first) / length(part) for part in quarters(rest, 3) for v in part]
        for first, rest in zip(x, o, strict=True)
    ]


def streams_predict(s, c):
    out = []
    for row, own in zip(s, c, strict=True):
        parts = quarters(row)
        out.append([v + sum(own[4 * j + k] * parts[k][i] for k in range(4)) for j in range(4) for i, v in enumerate(parts[j])])
    return out


def streams_correct(p, y, c):
    rows = [(quarters(row), made, own) for row, made, own in zip(p, y, c, strict=True)]
    return [
        [v + (own[j] + 1) * (made[i] - parts[0][i]) for j in range(4) for i, v in enumerate(parts[j])] for parts, made, own in rows
    ]


def streams_inject(s, y):
    return [[v + (made[i % len(made)] if i >= len(made) else 0) for i, v in enumerate(row)] for row, made in zip(s, y, strict=True)]


def streams_end(s, b):
    out = []
    for row, back in zip(s, b, strict=True):
        first = quarters(row)[0]
        brought = [[v * length(first) / length(part) for v in part] for part in quarters(back, 3)]
        out.append([sum(column) / 4 for column in zip(first, *brought, strict=True)])
    return out


def expert_scale(x, routes, *, used):
    n = len(x[0]) // used
    return [[v * route[i // n] for i, v in enumerate(row)] for row, route in zip(x, routes, strict=True)]


def expert_sum(x, routes, *, used, weighted=True):
    n = len(x[0]) // used
    routes = routes if weighted else [[1.0] * used] * len(x)
    return [[sum(route[j] * row[j * n + i] for j in range(used)) for i in range(n)] for row, route in zip(x, routes, strict=True)]


def gate_rows(y, h, w):
    scores = [sum(a * c for a, c in zip(row, w, strict=True)) for row in h]
    return [[v / (1 + exp(-score)) for v in row] for row, score in zip(y, scores, strict=True)]


FORMULAS = (embed, rmsnorm, layernorm, head_rmsnorm, head_layernorm, linear, rope, attention, add, gated, unary, select, scale)
FORMULAS += (softcap, clamp, bias, add_position, temper, route, expert_linear, expert_sum, gate_rows, head_linear, latent_attention)
FORMULAS += (head_l2norm, group_rmsnorm, head_part, recurrent.conv, recurrent.delta_rule, recurrent.state_scan)
FORMULAS += (expert_scale, weigh, route_scale, gate_heads, sparsify)
FORMULAS += (streams_begin, streams_predict, streams_correct, streams_inject, streams_end)
FORMULAS = {f.__name__: f for f in FORMULAS}

# ---- tests -----------------------------------------------------------------------------------------------------

COST = 300_000  # elements; the formulas are slow, larger cases are for kernels
CASES = [(op, case) for op in ops.operations() for case in ops.find(op).CASES]


def size(case):
    if "value_dim" in case and "rows" in case and "key_heads" in case:
        return case["rows"] * case["heads"] * case["key_dim"] * case["value_dim"]
    if "state_dim" in case:
        return case["rows"] * case["heads"] * case["head_dim"] * case["state_dim"]
    count = (case.get("rows", 1) + case.get("first", 0)) * case.get("n", 1) * case.get("in", 1) * case.get("out", 1)
    return count * case.get("used", 1) * case.get("heads", 1) * case.get("key_dim", 1)


@pytest.mark.parametrize("op, case", CASES, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values())))
def test_reference_equals_its_formula(op, case):
    if size(case) > COST:
        case = case | {"rows": 1}
    module = ops.find(op)
    arrays, words = module.inputs(case, np.random.default_rng(5))
    given = words | ({"states": words["states"].tolist()} if "states" in words else {})
    exact = np.array(FORMULAS[op](*[a if a is None else a.astype(float).tolist() for a in arrays], **given))
    out = module.reference(*arrays, **words)
    if "states" in words:
        assert np.abs(words["states"] - given["states"]).max() <= module.TOLERANCE * np.abs(given["states"]).max()
    assert out.dtype == np.float32
    assert out.shape == exact.shape
    assert np.abs(out - exact).max() <= module.TOLERANCE * np.abs(exact).max()


@pytest.mark.parametrize("op", ops.operations())
def test_declaration_is_complete(op):
    module = ops.find(op)
    assert module.__doc__.startswith(f"{op}: ")
    assert set(module.OPERANDS) == {"out", "ins", "weights", "args", "state"}
    assert len(module.CASES) >= 2
    for case in module.BENCH:
        assert set(case) <= set(module.CASES[0]), "bench cases use the words of the test cases"


def test_gelu_is_the_tanh_form_of_the_exact_one():
    """The formula above and the reference share a constant; the exact function does not."""
    x = np.linspace(-6, 6, 241, dtype=np.float32)
    out = ops.find("gated").reference(x, np.ones_like(x), act="gelu")
    assert np.abs(out - [v * 0.5 * (1 + erf(v / sqrt(2))) for v in x.tolist()]).max() < 5e-4


def test_silu_far_from_zero():
    x = np.array([-1000.0, -90.0, -20.0, 0.0, 90.0], np.float32)
    with np.errstate(all="raise", under="ignore"):
        out = ops.find("gated").reference(x, np.ones_like(x), act="silu")
    assert out[0] == out[3] == 0
    assert out[2] == pytest.approx(-20 * exp(-20), rel=1e-6)
    assert out[4] == 90


def test_unknown_operation():
    with pytest.raises(InternalError, match="rmsnorm"):
        ops.find("rmsnorms")
