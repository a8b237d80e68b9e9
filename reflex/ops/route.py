"""route: which experts a row goes to, and with which weights (Shazeer et al. 2017, arXiv 1701.06538).

p = softmax or sigmoid of the router's logits, or the logits themselves; the `used` largest of p + bias
are chosen, in falling order, the lower index first on ties; their weights are p without the bias. "softmax of chosen" and
"sigmoid of chosen" choose by the logits themselves and make weights of those of the chosen. With `groups` the experts stand in as
many equal runs and only those of the `groups_used` runs with the largest sum of two best are candidates (arXiv 2412.19437, 2.1.2).
`renormalize` divides by the sum of the weights, at least 2^-14; then `scale` multiplies.
"""

OPERANDS = {
    "out": "routes [rows, 2 used]: the weights, then the indices of the experts as numbers",
    "ins": ("logits [rows, experts]",),
    "weights": ("bias [experts] or None: only chooses",),
    "args": (
        "used: experts per row",
        "gating: softmax, sigmoid, softmax of chosen or sigmoid of chosen",
        "renormalize: True or False",
        "scale: of the weights",
        "groups: 0 or 1: none",
        "groups_used",
    ),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "experts": experts, "used": used, "gating": gating, "renormalize": norm, "scale": s, "groups": g, "bias": bias}
    for rows, experts, used, gating, norm, s, g, bias in (
        (1, 4, 2, "softmax", True, 1.0, 0, False),
        (7, 8, 2, "softmax", False, 1.0, 0, False),
        (33, 128, 8, "softmax", True, 1.0, 0, False),
        (3, 60, 4, "softmax", False, 2.5, 0, True),
        (5, 32, 4, "softmax of chosen", False, 1.0, 0, False),
        (2, 64, 6, "sigmoid", True, 2.5, 0, True),
        (9, 256, 8, "sigmoid", True, 2.5, 8, True),
        (1, 384, 6, "sigmoid", False, 1.0, 0, True),
        (2, 1, 1, "sigmoid", True, 1.0, 0, False),
        (4, 16, 16, "softmax", True, 1.0, 0, False),
        (7, 384, 6, "sigmoid of chosen", False, 1.0, 0, True),
        (2, 24, 5, "sigmoid of chosen", True, 1.5, 0, False),
    )
)
BENCH = tuple(CASES[2] | {"rows": rows} for rows in (1, 512))
LEAST_SUM = 2.0**-14


def reference(logits, bias, *, used, gating, renormalize, scale, groups=0, groups_used=0):
    import numpy as np

    p = {"softmax": softmax, "sigmoid": sigmoid}.get(gating, lambda x: x)(logits)
    choice = p if bias is None else p + bias
    if groups > 1:
        choice = choice.copy()
        runs = choice.reshape(len(p), groups, p.shape[1] // groups)
        score = np.sort(runs, -1)[:, :, -2:].sum(-1)
        dropped = np.argsort(-score, -1, kind="stable")[:, groups_used:]
        np.put_along_axis(runs, dropped[:, :, None], -np.inf, 1)
    chosen = np.argsort(-choice, -1, kind="stable")[:, :used]
    w = np.take_along_axis(p, chosen, -1)
    if gating in OF_CHOSEN:
        w = OF_CHOSEN[gating](w)
    if renormalize:
        w = w / np.maximum(w.sum(-1, keepdims=True), np.float32(LEAST_SUM))
    return np.concatenate([w * np.float32(scale), chosen.astype(np.float32)], -1)


def softmax(x):
    import numpy as np

    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def sigmoid(x):
    import numpy as np

    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


OF_CHOSEN = {"softmax of chosen": softmax, "sigmoid of chosen": sigmoid}


def inputs(case, random):
    logits = 2 * random.standard_normal((case["rows"], case["experts"]), "float32")
    bias = 0.3 * random.standard_normal(case["experts"], "float32") if case["bias"] else None
    words = {name: case[name] for name in ("used", "gating", "renormalize", "scale", "groups")}
    return (logits, bias), words | {"groups_used": case["groups"] // 2}
