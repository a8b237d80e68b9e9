"""Emitter of per-layer embeddings: every layer reads, besides the residual stream, a small vector of its own for every token.

It is the sum of a row of a table, which the token chooses, and of what a matrix makes of the embedding.
"""


def emit_inputs(program, spec):
    """Adds the steps that leave the vectors of all layers in the buffer `inputs`, made of the embedding in x."""
    made, layers = spec.inputs, len(spec.layers)
    inputs = program.buffer("inputs", layers * made.width)
    rows = program.buffer("input rows", layers * made.width)
    program.linear(inputs, "x", made.matrix)
    program.emit("scale", inputs, (inputs,), (), {"factor": spec.width**-0.5})
    program.emit("head_rmsnorm", inputs, (inputs,), (made.norm,), {"heads": layers, "head_dim": made.width, "eps": spec.eps})
    program.emit("embed", rows, (), (made.table,), {"scale": made.width**0.5})
    program.emit("add", inputs, (inputs, rows), (), {"scale": 1.0})
    program.emit("scale", inputs, (inputs,), (), {"factor": 2**-0.5})


def emit_input(program, spec, layer):
    """Adds the steps that leave x + norm(proj(gelu(gate x) * the layer's vector)) in x."""
    y = emit_branch(program, spec, layer, "x")
    program.emit("add", "x", ("x", y), (), {"scale": 1.0})


def emit_branch(program, spec, layer, source):
    """Adds the steps of that branch over `source`; returns its buffer."""
    width, layers = spec.inputs.width, len(spec.layers)
    own, g, y = program.buffer("input", width), program.buffer("input gate", width), program.buffer("y", spec.width)
    place = {"heads": 1, "head_dim": width, "stride": layers * width, "first": layer.index * width}
    program.emit("head_part", own, ("inputs",), (), place)
    program.linear(g, source, layer.input_gate)
    program.emit("gated", g, (g, own), (), {"act": "gelu"})
    program.linear(y, g, layer.input_proj)
    program.norm(y, y, layer.input_norm, spec)
    return y
