import numpy
from pages import LAYER_AT, REST, Attention, CacheCase, Inputs, RestCase
from run import Addresses


def case(label, a, inputs, rest=False, **words):
    """rest: what float16 leave is wanted too."""
    k, v = a.k.copy(), a.v.copy()
    before = a.pages(k, v, a.first)
    k[a.first :], v[a.first :] = inputs.wanted_k, inputs.wanted_v
    q, wanted_q = inputs.q, inputs.wanted_q
    ring, made = (a.ring(), RestCase) if rest else (numpy.zeros(1, "u4"), CacheCase)
    limit = 128 if max(a.key_dim, a.value_dim) <= 128 else 512
    args = [
        q, inputs.k, inputs.v, inputs.q_norm, inputs.k_norm, inputs.angles, a.cells, Addresses(before), ring,
        q.shape[1], inputs.k.shape[1], inputs.v.shape[1], a.heads, a.kv_heads, a.key_dim, a.value_dim, inputs.pairs,
        LAYER_AT, inputs.flags | REST * rest, inputs.eps,
    ]  # fmt: skip
    grid = ((a.heads + 2 * a.kv_heads + 3) // 4, a.rows)
    words |= {"cache": 7, "pages": a.pages(k, v, a.count)}
    if rest:
        words |= {"attention": a, "whole": (inputs.whole_k, inputs.v), "ring": 8}
    return made(label, f"attention_inputs_{limit}", grid, args, {0: wanted_q}, tolerance=5e-6 if rest else 2e-5, **words)


def cases():
    for label, rows, first, heads, kv_heads, dim, words in (
        ("norm and neox", 2, 255, 4, 2, 128, {"dims": 128}),
        ("norm after", 3, 7, 3, 1, 64, {"dims": 64, "after": True}),
        ("pairs side by side", 1, 256, 3, 3, 96, {"dims": 96, "style": "norm", "q_norm": False, "k_norm": False}),
        ("partial rotation", 2, 31, 2, 1, 80, {"dims": 34, "k_norm": False}),
        ("no rotation", 2, 0, 2, 2, 33, {"dims": 0}),
        ("plain append", 1, 511, 1, 1, 1, {"dims": 0, "q_norm": False, "k_norm": False}),
        ("wide", 1, 3, 2, 1, 256, {"dims": 256, "style": "neox"}),
        ("widest", 1, 3, 1, 1, 512, {"dims": 256, "after": True}),
    ):
        a = Attention(rows, first, heads, kv_heads, dim, dim, seed=first)
        yield case(label, a, Inputs(a, **words))
    a = Attention(2, 4, 2, 1, 24, 40)
    yield case("two widths", a, Inputs(a, 24))
    yield case("with the rest", a, Inputs(a, 24), rest=True)
    a = Attention(3, 1022, 2, 2, 33, 31)
    yield case("with the rest, around the ring", a, Inputs(a, 32), rest=True)


def bench():
    for name, heads, kv_heads in (("0.6B", 16, 8), ("8B", 32, 8)):
        for rows in (1, 32, 512):
            a = Attention(rows, 0, heads, kv_heads, 128, 128)
            one = case(f"{name} {rows} rows", a, Inputs(a, 128), emulate=False)
            one.bytes = rows * 128 * (8 * heads + 12 * kv_heads)
            yield one
