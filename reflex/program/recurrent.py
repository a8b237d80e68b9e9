"""Emitter of the mixers that carry a state from token to token: convolutions, delta rules, scans, short convolutions.

Every token of the batch takes part, wanted or not: the state behind the batch depends on all. Formulas: reflex/ops.
"""


def emit_mixer(program, spec, layer, h):
    """Adds the steps of a layer's mixer over the normed stream `h`; returns the buffer that its output matrix reads."""
    return EMITTERS[layer.mixer.kind](program, spec, layer.mixer, h)


def emit_parts(program, mixer, h, words):
    """What the mixer reads, each in a buffer of its own; returns their names."""
    made, joint = {}, {}
    for word in words:
        part = mixer.inputs[word]
        made[word] = buffer = program.buffer("r" + word, part.width)
        source = h
        if part.first:
            matrix, width = part.first
            source = program.buffer("rf", width)
            program.linear(source, h, matrix)
        if not part.heads:
            program.linear(buffer, source, part.matrix)
            continue
        whole = joint.get(part.matrix)
        if whole is None:
            whole = joint[part.matrix] = program.buffer(f"rj{len(joint)}", part.heads * part.stride)
            program.linear(whole, source, part.matrix)
        args = {"heads": part.heads, "head_dim": part.size, "stride": part.stride, "first": part.start}
        program.emit("head_part", buffer, (whole,), (), args)
    return [made[word] for word in words]


def emit_conv(program, mixer, word, source, act=True):
    """The convolution of `source`, activated; returns its buffer."""
    width = program.widths[source]
    out = program.buffer("c" + word, width)
    name, bias, first = mixer.convs[word]
    state = program.state((mixer.taps - 1) * width)
    program.emit("conv", out, (source,), (name, bias), {"first": first, "taps": mixer.taps, "state": state})
    if act:
        program.emit("unary", out, (out,), (), {"act": "silu", "parameters": ()})
    return out


def emit_steps(program, mixer, dt):
    """dt = softplus(dt + bias)"""
    program.emit("bias", dt, (dt,), (mixer.dt_bias,))
    program.emit("unary", dt, (dt,), (), {"act": "softplus", "parameters": ()})


def emit_delta(program, spec, mixer, h):
    """q, k, v of a convolution, q and k of length 1; the state; a norm of every head; a gate."""
    sources = emit_parts(program, mixer, h, ("q", "k", "v"))
    q, k, v = (emit_conv(program, mixer, word, source) for word, source in zip("qkv", sources, strict=True))
    for buffer in (q, k):
        args = {"heads": mixer.key_heads, "head_dim": mixer.key_dim, "eps": spec.eps}
        program.emit("head_l2norm", buffer, (buffer,), (), args)
    dt, beta, z = emit_parts(program, mixer, h, ("dt", "beta", "z"))
    emit_steps(program, mixer, dt)
    program.emit("unary", beta, (beta,), (), {"act": "sigmoid", "parameters": ()})
    words = ("heads", "key_heads", "key_dim", "value_dim")
    args = {word: getattr(mixer, word) for word in words} | {"order": mixer.key_order, "channels": mixer.kind != "delta"}
    args["state"] = program.state(mixer.heads * mixer.key_dim * mixer.value_dim)
    o = program.buffer("ro", mixer.inner)
    program.emit("delta_rule", o, (q, k, v, dt, beta), (mixer.a,), args)
    args = {"heads": mixer.heads, "head_dim": mixer.value_dim, "eps": spec.eps}
    program.emit("head_rmsnorm", o, (o,), (mixer.norm,), args)
    program.emit("gated", z, (z, o), (), {"act": "silu" if mixer.kind == "delta" else "sigmoid"})
    return z


def emit_scan(program, spec, mixer, h):
    """u, B, C of a convolution; the state; a gate, and then a norm of every group."""
    z, *sources, dt = emit_parts(program, mixer, h, ("z", "v", "k", "q", "dt"))
    u, b, c = (emit_conv(program, mixer, word, source) for word, source in zip("vkq", sources, strict=True))
    emit_steps(program, mixer, dt)
    args = {"heads": mixer.heads, "head_dim": mixer.value_dim, "groups": mixer.key_heads, "state_dim": mixer.key_dim}
    args["state"] = program.state(mixer.heads * mixer.key_dim * mixer.value_dim)
    o = program.buffer("ro", mixer.inner)
    program.emit("state_scan", o, (u, b, c, dt), (mixer.a, mixer.d), args)
    program.emit("gated", z, (z, o), (), {"act": "silu"})
    if mixer.norm:
        args = {"groups": mixer.key_heads, "size": mixer.inner // mixer.key_heads, "eps": spec.eps}
        program.emit("group_rmsnorm", z, (z,), (mixer.norm,), args)
    return z


def emit_short(program, spec, mixer, h):
    """z conv(k v): three parts of one matrix, no activation."""
    k, z, v = emit_parts(program, mixer, h, ("k", "z", "v"))
    program.emit("gated", k, (k, v), (), {"act": "product"})
    c = emit_conv(program, mixer, "k", k, act=False)
    program.emit("gated", z, (z, c), (), {"act": "product"})
    return z


EMITTERS = {"delta": emit_delta, "delta of channels": emit_delta, "scan": emit_scan, "conv": emit_short}
