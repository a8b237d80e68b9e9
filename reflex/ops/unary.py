"""unary: x = act(x), the feed-forward without a gate; in place.

gelu and silu as in gated; relu2(x) = max(x, 0)^2 (So et al. 2021, arXiv 2109.08668); xielu, `parameters` (alpha_p, alpha_n,
beta, eps), all as a file states them (Huang and Schlag 2024, arXiv 2411.13010): with a_p = softplus(alpha_p) and
a_n = beta + softplus(alpha_n), a_p x^2 + beta x above 0, else (exp(min(x, eps)) - 1 - x) a_n + beta x;
sigmoid(x) = 1 / (1 + exp(-x)); softplus(x) = ln(1 + exp(x)), x itself above 20.
"""

from .gated import gelu, silu

OPERANDS = {
    "out": "x [rows, n]",
    "ins": ("x [rows, n]",),
    "weights": (),
    "args": ("act: gelu, silu, relu2, xielu, sigmoid or softplus", "parameters: of the activation, () where it has none"),
    "state": (),
}
TOLERANCE = 1e-5
XIELU = (0.8, -0.4, 0.5, -1e-6)
CASES = tuple(
    {"rows": rows, "n": n, "act": act}
    for act in ("gelu", "silu", "relu2", "xielu", "sigmoid", "softplus")
    for rows, n in ((1, 1), (1, 31), (2, 33), (3, 256), (33, 1536))
)
BENCH = tuple({"rows": rows, "n": 8192, "act": act} for act in ("gelu", "relu2") for rows in (1, 512))


def relu2(x):
    import numpy as np

    return np.square(np.maximum(x, 0))


def softplus(x):
    from math import exp, log1p

    return x + log1p(exp(-x)) if x > 0 else log1p(exp(x))


def xielu(x, alpha_p, alpha_n, beta, eps):
    import numpy as np

    a_p, a_n = np.float32(softplus(alpha_p)), np.float32(beta + softplus(alpha_n))
    beta = np.float32(beta)
    below = (np.expm1(np.minimum(x, np.float32(eps))) - x) * a_n + beta * x
    return np.where(x > 0, a_p * x * x + beta * x, below)


def sigmoid(x):
    import numpy as np

    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def softplus_of(x):
    import numpy as np

    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, np.float32(20)))))


ACTIVATIONS = {"gelu": gelu, "silu": silu, "relu2": relu2, "xielu": xielu, "sigmoid": sigmoid, "softplus": softplus_of}


def reference(x, *, act, parameters=()):
    return ACTIVATIONS[act](x, *parameters)


def inputs(case, random):
    x = 4 * random.standard_normal((case["rows"], case["n"]), "float32")
    return (x,), {"act": case["act"], "parameters": XIELU if case["act"] == "xielu" else ()}
