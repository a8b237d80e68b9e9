"""gated: act(g) * u, the gated feed-forward unit (Shazeer 2020, arXiv 2002.05202); in place of g.

silu(x) = x / (1 + exp(-x)); gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, arXiv 1606.08415).
swiglu_oai (gpt-oss) clamps first: with a = min(g, 7) and b = min(max(u, -7), 7) it is a / (1 + exp(-1.702 a)) * (b + 1).
sigmoid: u / (1 + exp(-g)), of outputs that are gated; product: g u. With a `limit` c, of silu alone, it is
min(silu(g), c) min(max(u, -c), c).
"""

from math import pi, sqrt

OPERANDS = {
    "out": "g [rows, n]",
    "ins": ("g [rows, n]", "u [rows, n]"),
    "weights": (),
    "args": ("act: silu, gelu, swiglu_oai, sigmoid or product", "limit: c, optional"),
    "state": (),
}
TOLERANCE = 1e-5
CASES = tuple(
    {"rows": rows, "n": n, "act": act}
    for act in ("silu", "gelu", "swiglu_oai", "sigmoid", "product")
    for rows, n in ((1, 1), (1, 31), (1, 32), (2, 33), (3, 256), (33, 1536))
)
CASES += tuple({"rows": rows, "n": n, "act": "silu", "limit": 0.7} for rows, n in ((1, 31), (3, 256)))
BENCH = tuple({"rows": rows, "n": 8192, "act": act} for act in ("silu", "gelu") for rows in (1, 512))


def silu(x):
    import numpy as np

    with np.errstate(over="ignore"):  # exp(-x) is infinite below -88, where the quotient rightly becomes 0
        return x / (1 + np.exp(-x))


def gelu(x):
    import numpy as np

    z = np.float32(2 * sqrt(2 / pi)) * (x + np.float32(0.044715) * x * x * x)
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-z))  # (1 + tanh(z/2)) / 2 = 1 / (1 + exp(-z)); the sum with tanh cancels for negative x


def swiglu_oai(g, u):
    import numpy as np

    limit, alpha = np.float32(7), np.float32(1.702)
    a, b = np.minimum(g, limit), np.clip(u, -limit, limit)
    with np.errstate(over="ignore"):
        return a / (1 + np.exp(-alpha * a)) * (b + 1)


def gated_sigmoid(g, u):
    import numpy as np

    with np.errstate(over="ignore"):
        return u / (1 + np.exp(-g))


UNITS = {"silu": lambda g, u: silu(g) * u, "gelu": lambda g, u: gelu(g) * u, "swiglu_oai": swiglu_oai}
UNITS |= {"sigmoid": gated_sigmoid, "product": lambda g, u: g * u}


def reference(g, u, *, act, limit=0.0):
    if limit:
        import numpy as np

        c = np.float32(limit)
        return np.minimum(silu(g), c) * np.clip(u, -c, c)
    return UNITS[act](g, u)


def inputs(case, random):
    shape = (case["rows"], case["n"])
    return (4 * random.standard_normal(shape, "float32"), random.standard_normal(shape, "float32")), {
        name: case[name] for name in ("act", "limit") if name in case
    }
