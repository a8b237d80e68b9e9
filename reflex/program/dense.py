"""Emitter of the feed-forward half of a block: norm, matrices, activation, residual. A parallel block brings its normed input."""


def emit_feed_forward(program, spec, layer, source):
    """Adds the steps that leave x + feed_forward(h) in x; h is `source`, or norm(x) where that is None."""
    if source is None:
        source = "x"
        if layer.ffn_norm:
            source = program.buffer("h", spec.width)
            program.norm(source, "x", layer.ffn_norm, spec)
    y = program.buffer("y", spec.width)
    if layer.experts:
        from .experts import emit_beside, emit_experts  # an import that most programs need not wait for

        (emit_beside if layer.experts.beside else emit_experts)(program, spec, layer, source, y)
    else:
        emit_matrices(program, spec, layer, source, y)
    if layer.ffn_out_norm:
        program.norm(y, y, layer.ffn_out_norm, spec)
    program.emit("add", "x", ("x", y), (), {"scale": spec.residual_scale})


def emit_matrices(program, spec, layer, source, y):
    """y = down(act(gate(source)) * up(source)), or down(act(up(source))) without a gate."""
    act = spec.family.act
    limit = {"limit": layer.limit} if layer.limit else {}
    g = program.buffer("g", layer.feed_forward)
    if layer.gate:
        u = program.buffer("u", layer.feed_forward)
        program.linear(g, source, layer.gate)
        program.linear(u, source, layer.up)
        if layer.sparsity:
            program.emit("sparsify", g, (g,), (), {"deviations": layer.sparsity})
        program.emit("gated", g, (g, u), (), {"act": act} | limit)
    else:
        program.linear(g, source, layer.up)
        program.emit("unary", g, (g,), (), {"act": act, "parameters": layer.act_parameters})
    program.linear(y, g, layer.down)
