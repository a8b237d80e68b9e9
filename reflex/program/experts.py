"""Emitter of a mixture of experts: the router, the experts that it chooses for each row, and the one that all rows share."""

from .dense import emit_matrices


def emit_experts(program, spec, layer, source, y):
    """Adds the steps that leave sum_j w_j expert_j(h) + shared(h), h = `source`, in the buffer y."""
    e = layer.experts
    r = program.buffer("r", e.count)
    routes = program.buffer("routes", 2 * e.used)
    g = program.buffer("g", e.used * e.width)
    d = program.buffer("d", e.used * (e.inner or spec.width))
    program.linear(r, source, e.router)
    program.emit("route", routes, (r,), (e.choice_bias,), route_args(e))
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
        program.emit("gated", g, (g, u), (), {"act": spec.family.act})
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
