"""Emitter of a mixture of experts: the router, the experts that it chooses for each row, and the one that all rows share."""

from .dense import emit_matrices


def emit_beside(program, spec, layer, source, y):
    """Adds the steps that leave the sum of a dense feed-forward and of a mixture, each with norms of its own, in the buffer y. The
    router reads the residual stream, normed by weights that it has for itself."""
    beside = layer.experts.beside
    emit_matrices(program, spec, layer, source, y)
    program.norm(y, y, beside.dense_norm, spec)
    h, seen, ye = (program.buffer(name, spec.width) for name in ("he", "router in", "ye"))
    program.emit("rmsnorm", seen, ("x",), (beside.router_scale,), {"eps": spec.eps})
    program.emit("scale", seen, (seen,), (), {"factor": spec.width**-0.5})
    program.norm(h, "x", beside.before, spec)
    emit_experts(program, spec, layer, h, ye, seen)
    program.norm(ye, ye, beside.behind, spec)
    program.emit("add", y, (y, ye), (), {"scale": 1.0})


def emit_experts(program, spec, layer, source, y, router_source=None):
    """Adds the steps that leave sum_j w_j expert_j(h) + shared(h), h = `source`, in the buffer y. `router_source`: what the router
    reads, where it is not h."""
    e = layer.experts
    r = program.buffer("r", e.count)
    routes = program.buffer("routes", 2 * e.used)
    g = program.buffer("g", e.used * e.width)
    d = program.buffer("d", e.used * (e.inner or spec.width))
    program.linear(r, router_source or source, e.router)
    program.emit("route", routes, (r,), (e.choice_bias,), route_args(e))
    if e.down_scale:
        program.emit("route_scale", routes, (routes,), (e.down_scale,), {"used": e.used})
    seen, made = source, y
    if e.shrink:
        seen, made = program.buffer("seen", e.inner), program.buffer("made", e.inner)
        program.linear(seen, source, e.shrink)
    if e.gate:
        u = program.buffer("u", e.used * e.width)
        program.expert_linear(g, seen, routes, e.gate, e.used)
        program.expert_linear(u, seen, routes, e.up, e.used)
        if spec.family.weight_input:  # the products are linear, so their results may be multiplied as well
            for buffer in (g, u):
                program.emit("expert_scale", buffer, (buffer, routes), (), {"used": e.used})
        program.emit("gated", g, (g, u), (), {"act": spec.family.act} | ({"limit": e.limit} if e.limit else {}))
    else:
        program.expert_linear(g, seen, routes, e.up, e.used)
        program.emit("unary", g, (g,), (), {"act": spec.family.act, "parameters": layer.act_parameters})
    program.expert_linear(d, g, routes, e.down, e.used)
    program.emit("expert_sum", made, (d, routes), (), {"used": e.used} | ({"weighted": False} if spec.family.weight_input else {}))
    if e.shrink:
        program.linear(y, made, e.unshrink)
    if e.shared:
        ys = program.buffer("ys", spec.width)
        emit_matrices(program, spec, e.shared, source, ys)
        if e.shared.row_gate:
            program.emit("gate_rows", ys, (ys, source), (e.shared.row_gate,))
        program.emit("add", y, (y, ys), (), {"scale": 1.0})


def route_args(e):
    words = ("used", "gating", "renormalize", "scale", "groups", "groups_used")
    return {word: getattr(e, word) for word in words}
