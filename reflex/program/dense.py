"""Emitter of the gated feed-forward half of a block: norm, gate, up, activation, down, residual."""


def emit_feed_forward(program, spec, layer):
    """Adds the steps that leave x + down(act(gate(h)) * up(h)), h = norm(x), in x."""
    source = "x"
    if layer.ffn_norm:
        source = program.buffer("h", spec.width)
        program.emit("rmsnorm", source, ("x",), (layer.ffn_norm,), {"eps": spec.eps})
    g = program.buffer("g", layer.feed_forward)
    u = program.buffer("u", layer.feed_forward)
    y = program.buffer("y", spec.width)
    program.linear(g, source, layer.gate)
    program.linear(u, source, layer.up)
    program.emit("gated", g, (g, u), (), {"act": spec.family.act})
    program.linear(y, g, layer.down)
    if layer.ffn_out_norm:
        program.emit("rmsnorm", y, (y,), (layer.ffn_out_norm,), {"eps": spec.eps})
    program.emit("add", "x", ("x", y), (), {"scale": spec.residual_scale})
