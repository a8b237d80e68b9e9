"""latent_attention: attention whose values are the first `value_dim` of its keys, one head of both for all heads of queries.

The absorbed form of multi-head latent attention (arXiv 2405.04434, appendix C): a cached row is a compressed vector and one
rotated key; queries come in the space of that row (ops/head_linear.py). Which slots a row sees, and in which order, is as in
ops/attention.py.
"""

OPERANDS = {
    "out": "a [rows, heads * value_dim]",
    "ins": ("q [rows, heads * key_dim]", "c [tokens, key_dim]"),
    "weights": (),
    "args": ("layer: index of the cache", "heads", "key_dim", "value_dim", "scale"),
    "state": (
        "keys: the cache of the layer in place of c, [slots, key_dim]",
        "slots, positions, shared, branch: one per row",
        "runs: per row a tuple of (first, end); empty: no row has any",
    ),
}
TOLERANCE = 2e-5
CASES = tuple(
    {"rows": rows, "first": first, "heads": heads, "key_dim": kd, "value_dim": vd, "branch": branch}
    for rows, first, heads, kd, vd, branch in (
        (1, 0, 1, 2, 1, ""),
        (1, 31, 4, 40, 32, ""),
        (7, 0, 9, 72, 64, ""),
        (33, 32, 2, 576, 512, ""),
        (3, 130, 16, 576, 512, ""),
        (5, 40, 4, 33, 31, "branch"),
        (11, 70, 4, 24, 16, "tree"),
    )
)
BENCH = tuple({"rows": r, "first": f, "heads": 16, "key_dim": 576, "value_dim": 512, "branch": ""} for r, f in ((1, 511), (512, 0)))


def reference(q, keys, *, heads, key_dim, value_dim, scale, **where):
    from .attention import reference as attention

    words = {"kv_heads": 1, "window": 0, "softcap": 0.0}
    values = keys[:, :value_dim]
    return attention(q, keys, values, heads=heads, key_dim=key_dim, value_dim=value_dim, scale=scale, **words, **where)


def inputs(case, random):
    from .attention import inputs as attention

    words = {"kv_heads": 1, "window": 0, "softcap": 0.0, "sinks": False}
    (q, k, _), found = attention(case | words, random)
    return (q, k), {name: value for name, value in found.items() if name not in words}
