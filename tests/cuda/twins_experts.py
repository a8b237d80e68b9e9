"""Twins of the kernels of mixtures of experts; see twins.py."""

import numpy
from cases.expert_order import arranged
from twins import UNITS, from_halves, matrix, reference, rows_of, twin

from reflex.ops.linear import product
from reflex.quant.types import by_name

GATINGS = "softmax", "sigmoid", "softmax of chosen", "sigmoid of chosen"  # as the kernels count them


@twin("route")
def route(grid, logits, bias, biased, experts, used, gating, renormalize, scale, groups, kept, rows, routes):
    words = {"used": used, "gating": GATINGS[gating], "renormalize": renormalize, "scale": scale}
    words |= {"groups": groups, "groups_used": kept}
    x = rows_of(logits, rows, experts)
    rows_of(routes, rows, 2 * used)[:] = reference("route")(x, bias[:experts] if biased else None, **words)


@twin("router_(?:row|rows)")
def router(grid, x, norm, normed, eps, columns, w, bias, biased, out, experts=None, rows=1):
    experts = experts or grid[0]
    h = rows_of(x, rows, columns)
    if normed:
        h = reference("rmsnorm")(h, norm[:columns], eps=eps)
    y = product(h, rows_of(w, experts, columns))
    rows_of(out, rows, experts)[:] = y + bias[:experts] if biased else y


@twin("expert_order")
def expert_order(grid, routes, rows, experts, used, tokens, order, tiles, most):
    chosen = rows_of(routes, rows, 2 * used)[:, used:].astype(int)
    made, cut = arranged(chosen, experts, tokens)
    order[: len(made)] = made
    rows_of(tiles, most, 4)[:] = cut[:most]


@twin(r"expert_plain_(\w+)")
def expert_plain(
    kind, grid, xh, factor, each, columns, order, tiles, weights, stride, rows, bias, biased, bias_stride, out, out_stride, mode
):  # fmt: skip
    cut = rows_of(tiles, grid[1], 4)
    count = (int(order[: cut[:, 2].sum()].max()) // each) + 1
    h = from_halves(xh, factor, count, columns)
    for expert, first, pairs, _ in cut:
        if pairs:
            w = matrix(weights[expert * stride :], by_name(kind).id, rows, columns)
            own = order[first : first + pairs]
            y = product(h[own // each], w)
            if biased:
                y = y + bias[expert * bias_stride : expert * bias_stride + rows]
            for pair, values in zip(own, y, strict=True):
                place = slice(pair * out_stride, pair * out_stride + rows)
                out[place] = out[place] + values if mode == 1 else values


@twin(r"expert_tiles_(\d+)")
def expert_tiles(tokens, grid, xh, factor, each, columns, order, tiles, *rest):
    cut = rows_of(tiles, grid[0], 4)
    h = from_halves(xh, factor, int(order[: cut[:, 2].sum()].max()) // each + 1, columns)
    stacks, (out_stride, mode, act) = (rest[:8], rest[8:16]), rest[16:]
    for expert, first, pairs, _ in cut:
        own = order[first : first + pairs]
        made = []
        for w, kind, stride, rows, bias, biased, bias_stride, _ in stacks:
            y = product(h[own // each], matrix(w[expert * stride :], kind, rows, columns)) if pairs and rows else None
            made.append(y + bias[expert * bias_stride :][:rows] if biased and pairs else y)
        if mode == 2 and pairs:
            made = [reference("gated")(*made, act=UNITS[act]), None]
        for y, stack in zip(made, stacks, strict=True):
            for pair, values in zip(own, () if y is None else y, strict=y is not None):
                stack[-1][pair * out_stride : pair * out_stride + stack[3]] = values


@twin("route_scale")
def route_scale(grid, routes, s, used, count):
    held = rows_of(routes, count // used, 2 * used)
    held[:] = reference("route_scale")(held, s, used=used)


@twin("expert_scale")
def expert_scale(grid, x, routes, n, used):
    rows = grid[1] // used
    held = rows_of(x, rows, used * n)
    held[:] = reference("expert_scale")(held, rows_of(routes, rows, 2 * used), used=used)


@twin("expert_sum")
def expert_sum(grid, x, routes, out, n, used, mode, scale):
    rows = grid[1]
    words = {"used": used, "weighted": not mode & 2}
    y = reference("expert_sum")(rows_of(x, rows, used * n), rows_of(routes, rows, 2 * used), **words)
    held = rows_of(out, rows, n)
    held[:] = held + numpy.float32(scale) * y if mode & 1 else y


@twin(r"expert_gate_(\w+)")
def expert_gate(
    kind, grid, x, norm, normed, eps, columns, gate, up, stride, rows, logits, routes, routed, experts, used, gating, renormalize,
    scale, out, act, splits
):  # fmt: skip
    if not routed:
        words = {"used": used, "gating": GATINGS[gating], "renormalize": renormalize, "scale": scale}
        routes[: 2 * used] = reference("route")(logits[None, :experts], None, **words)[0]
    h = x[None, :columns]
    if normed:
        h = reference("rmsnorm")(h, norm[:columns], eps=eps)
    for j, expert in enumerate(routes[used : 2 * used].astype(int)):
        g, u = (h[0] @ matrix(w[expert * stride :], by_name(kind).id, rows, columns).T for w in (gate, up))
        out[j * rows : (j + 1) * rows] = reference("gated")(g, u, act=UNITS[act])


@twin(r"expert_down_(\w+)")
def expert_down(kind, grid, g, hidden, weights, stride, rows, routes, used, out, mode, scale, splits):
    ids, shares = routes[used : 2 * used].astype(int), routes[:used]
    y = sum(
        share * (g[j * hidden : (j + 1) * hidden] @ matrix(weights[e * stride :], by_name(kind).id, rows, hidden).T)
        for j, (e, share) in enumerate(zip(ids, shares, strict=True))
    )
    out[:rows] = out[:rows] + numpy.float32(scale) * y if mode else y
